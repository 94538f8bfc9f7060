"""How results, predictors and data sets show themselves: one line in Python, and a small table in a notebook."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

MOST_CHARACTERS = 60
"""Longest text of one fact."""
MOST_ITEMS = 5
"""Most items of a sequence that are shown one by one."""


class Summarised:
    """Base class of objects that show a few facts (``_facts``) instead of all of their content."""

    def _facts(self) -> Mapping[str, object]:
        """Return what is worth showing: name -> value. Texts, numbers, and short sequences of them are shown."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={text}" for name, text in _texts(self._facts()).items())
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in _texts(self._facts()).items()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"


def _texts(facts: Mapping[str, object]) -> dict[str, str]:
    texts = {name: _text(value) for name, value in facts.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _text(value: object) -> str | None:
    """Return a value as a short text; None for a value that is not shown."""
    if isinstance(value, Summarised):
        text = repr(value)
        return text if len(text) <= MOST_CHARACTERS else f"{type(value).__name__}(...)"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, (str, Path)):
        return repr(str(value) if len(str(value)) <= MOST_CHARACTERS else f"{str(value)[:MOST_CHARACTERS]}...")
    if isinstance(value, Sequence) and 0 < len(value) <= MOST_ITEMS:
        texts = [_text(one) for one in value]
        return f"[{', '.join(filter(None, texts))}]" if all(texts) else None
    if isinstance(value, Mapping) and 0 < len(value) <= MOST_ITEMS:
        items = {str(name): _text(one) for name, one in value.items()}
        return f"{{{', '.join(f'{name}: {text}' for name, text in items.items())}}}" if all(items.values()) else None
    return None
