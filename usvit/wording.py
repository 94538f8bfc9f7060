"""Numbers of things and lists of names in sentences."""

from collections.abc import Iterable, Mapping
from typing import Any


def plural(n: int, one: str, many: str | None = None) -> str:
    """``1 image``, ``2,000 images``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def counted(numbers: Mapping[str, int]) -> str:
    """``benign 437, malignant 210``."""
    return ", ".join(f"{name} {n:,}" for name, n in numbers.items())


def listed(names: Iterable[Any]) -> str:
    """``a, b and c``."""
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def capitalized(words: str) -> str:
    """``test set`` -> ``Test set``, whatever follows the first letter."""
    return words[:1].upper() + words[1:]
