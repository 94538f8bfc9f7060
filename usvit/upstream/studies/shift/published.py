"""Published figures of shift, from ``published.yaml``."""

from importlib.resources import files
from typing import Any

from usvit.plain_yaml import parse_yaml


def published_figures() -> list[dict[str, Any]]:
    """Return the entries, as ``shift.json`` contains them."""
    text = (files("usvit.upstream.studies.shift") / "published.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = parse_yaml(text, "The published figures")
    return found
