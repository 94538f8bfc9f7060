"""Types of plain data whose keys this package does not state: they come from users, other programs, or any record."""

from typing import Any

Json = dict[str, Any]
"""A JSON object: the content of any record, or a document whose keys another program states."""
Settings = dict[str, Any]
"""Settings as plain data, in sections within sections, before a configuration of ``usvit.config`` has checked them."""
