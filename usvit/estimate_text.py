"""Numbers with their intervals as text, in the same way in the terminal, in Markdown, in LaTeX and on pages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from usvit.estimate import Interval


class HasInterval(Protocol):
    """An ``Estimate``, or a record with the same three keys."""

    @property
    def value(self) -> float | None: ...
    @property
    def ci95(self) -> Interval | None: ...
    @property
    def reason(self) -> str | None: ...


def fixed(digits: int, option: str = "") -> Callable[[float], str]:
    """Return the function that formats a number with so many digits; ``option`` is ``+`` for a sign, or ``,``."""
    return lambda number: f"{number:{option}.{digits}f}"


THREE = fixed(3)


def per_cent(number: float) -> str:
    """``0.867`` -> ``86.7``."""
    return f"{100 * number:.1f}"


@dataclass(frozen=True)
class Style:
    """How a number and its interval are written."""

    number: Callable[[float], str] = THREE
    before: str = " ["
    between: str = ", "
    after: str = "]"
    undefined: str = "undefined"
    """Text without a value; ``{reason}`` stands for the reason."""
    end: Callable[[float], str] | None = None
    """How an end is written, if not as the number."""
    between_negative: str | None = None
    """Text between ends of which the lower one is negative, if not ``between``."""


def interval_text(estimate: HasInterval, style: Style) -> str:
    """Write the interval alone: ``0.812 to 0.901``; empty if there is none."""
    if estimate.ci95 is None:
        return ""
    low, high = map(style.end or style.number, estimate.ci95)
    negative = estimate.ci95[0] < 0 and style.between_negative is not None
    return f"{low}{style.between_negative if negative else style.between}{high}"


def estimate_text(estimate: HasInterval, style: Style) -> str:
    """Write a number with its interval: ``0.867 [0.812, 0.901]``; the number alone without an interval.

    >>> from usvit.estimate import Estimate
    >>> estimate_text(Estimate(value=0.8667, ci95=(0.8123, 0.9012)), WORDS)
    '0.867 (0.812 to 0.901)'
    """
    if estimate.value is None:
        return style.undefined.format(reason=estimate.reason)
    ends = interval_text(estimate, style)
    return style.number(estimate.value) + (f"{style.before}{ends}{style.after}" if ends else "")


def clear_of(number: float, *limits: float, digits: int = 3, sign: str = "") -> str:
    """``-0.0498`` with the limit -0.05, ``0.051`` otherwise: so many digits that rounding crosses and meets no limit.

    A bound of -0.0498 that is printed as -0.050 contradicts the verdict that it lies above -0.05. A number that eight
    digits do not tell from a limit is rounded as usual.

    >>> clear_of(-0.0498, -0.05), clear_of(-0.0512, -0.05), clear_of(-0.05, -0.05)
    ('-0.0498', '-0.051', '-0.050')
    """
    texts = [f"{number:{sign}.{more}f}" for more in range(digits, max(digits, 8) + 1)]
    for text in texts:
        if all((float(text) > one) == (number > one) and (float(text) < one) == (number < one) for one in limits):
            return text
    return texts[0]


def clear_of_zero(digits: int = 3, sign: str = "") -> Callable[[float], str]:
    """Return the function that formats the end of an interval so that rounding does not move it to or across 0."""
    return lambda number: clear_of(number, 0.0, digits=digits, sign=sign)


BRACKETS = Style()
"""``0.867 [0.812, 0.901]``, as in the terminal."""
WORDS = Style(before=" (", between=" to ", after=")")
"""``0.867 (0.812 to 0.901)``, as in Markdown."""
