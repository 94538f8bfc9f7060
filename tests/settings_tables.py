"""Tables of settings for the reference pages, made from the fields of a configuration."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from usvit.config.fields import meanings, section_in

Rows = dict[str, tuple[str, str]]
"""Dotted key of a setting -> its default and its meaning."""


def rows(section: type[BaseModel], places: Mapping[str, str] | None = None) -> Rows:
    """Return the settings of a configuration.

    Args:
        section: Class of the configuration.
        places: Key of a list or mapping of sections -> ``[]``, or the name of an entry, such as ``NAME``. None: only
            the settings in sections are shown, not the sections.
    """
    return dict(_rows(section, None, "", places))


def _rows(
    section: type[BaseModel], values: BaseModel | None, prefix: str, places: Mapping[str, str] | None
) -> Iterator[tuple[str, tuple[str, str]]]:
    texts = meanings(section)
    for name, field in section.model_fields.items():
        key, inner = prefix + name, section_in(field.annotation)
        default = getattr(values, name) if values else field.get_default(call_default_factory=True)
        shown = "required" if values is None and field.is_required() else _shown(default)
        text = texts.get(name) or (inner.__doc__ if inner else "").split("\n")[0]
        if name != "anyone" and (inner is None or places is not None):
            yield key, (shown, _with_choices(text.replace("``", "`"), field.annotation))
        if inner is not None:
            place = (places or {}).get(key, "")
            dot = "." if place not in ("", "[]") else ""
            yield from _rows(inner, default if isinstance(default, inner) else None, f"{key}{dot}{place}.", places)


def _with_choices(text: str, annotation: Any) -> str:
    """Return a text with the choices of a ``Literal`` if it does not name all of them."""
    choices = [f"`{choice}`" for choice in _choices(annotation)]
    return text if all(choice in text for choice in choices) else f"{text} Choices: {', '.join(choices)}."


def _choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for inner in get_args(annotation):
            yield from _choices(inner)


def _shown(default: Any) -> str:
    return "" if isinstance(default, BaseModel) or default in ((), {}) else json.dumps(default).strip('"')


def table(settings: Rows) -> str:
    """Return the settings as a table in Markdown."""
    lines = [f"| `{key}` | {default} | {meaning} |\n" for key, (default, meaning) in settings.items()]
    return "| key | default | meaning |\n|---|---|---|\n" + "".join(lines)


def check_page(page: Path, fresh: str, test: str) -> None:
    """Check that a page is up to date; with ``USVIT_RENEW``, write it."""
    if os.environ.get("USVIT_RENEW"):
        page.write_text(fresh, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == fresh, f"renew it: USVIT_RENEW=1 python -m pytest {test}"
