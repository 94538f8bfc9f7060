"""Arguments of the public functions as layers of settings, and their call as text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from usvit.config import nested
from usvit.plain_data import Settings


def given_settings(arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """Return the arguments that are not None, and all settings, as nested dictionaries."""
    known = {key: str(value) if isinstance(value, Path) else value for key, value in arguments.items()}
    return nested({key: value for key, value in known.items() if value is not None} | dict(settings))


def name_in(settings: Settings, section: str) -> str | None:
    """Return ``name`` of a section, or None if it is not set or the section is not a mapping (which fails later)."""
    inside = settings.get(section)
    name = inside.get("name") if isinstance(inside, dict) else None
    return None if name is None else str(name)


def call_text(function: str, arguments: Mapping[str, Any]) -> str:
    """Return the call of a public function as text, for ``run.json``.

    Args:
        function: Name of the function.
        arguments: Its arguments by name; those of ``settings`` and ``sections`` are keywords.
    """
    given: Settings = {}
    for name, value in arguments.items():
        given |= dict(value) if name in ("settings", "sections") else {} if name == "progress" else {name: value}
    return f"usvit.{function}({', '.join(f'{key}={value!r}' for key, value in given.items() if value is not None)})"
