"""Figures as a paper prints them: ``86.7%``, ``81.8% ± 0.2%``, ``84% to 85%``, ``5.6``."""

import re
from typing import Any, NamedTuple

_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
_PRINTED = re.compile(
    rf"(?P<low>{_NUMBER}) ?(?P<unit>%?)"
    rf"(?: ?(?:±|\+-) ?(?P<sd>{_NUMBER}) ?%?| ?(?:to|-|–) ?(?P<high>{_NUMBER}) ?(?P<unit_high>%?))?"
)


class Printed(NamedTuple):
    """A printed figure. Percentages are fractions: 86.7% is 0.867."""

    text: str
    """As printed."""
    low: float
    """The figure, or the lower end of a printed range."""
    high: float
    """The figure, or the upper end of a printed range."""
    sd: float | None
    """The printed standard deviation (``± 0.2%``)."""

    @property
    def value(self) -> float:
        """The figure; the middle of a range."""
        return self.low if self.low == self.high else (self.low + self.high) / 2

    @property
    def percent(self) -> bool:
        return "%" in self.text

    def difference(self, value: float) -> float:
        """Return a value minus the figure, or minus the nearer end of the range; 0 within it."""
        end = min(max(value, self.low), self.high)
        return float(f"{value - end:.12g}")  # as decimal text, because 0.82 - 0.818 is 0.0020000000000000018


def parse_printed(value: Any) -> Printed:
    """Parse a printed figure.

    Raises:
        ValueError: The text is not a number, a number with its standard deviation, or a range.
    """
    text = " ".join(str(value).split())
    found = _PRINTED.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is not a number, such as 86.7%, 81.8% ± 0.2%, 84% to 85% or 0.95")
    percent = bool(found["unit"] or found["unit_high"])
    low = _fraction(found["low"], percent)
    high = low if found["high"] is None else _fraction(found["high"], percent)
    if high < low:
        raise ValueError(f"the range '{text}' begins with its larger end")
    return Printed(text, low, high, None if found["sd"] is None else _fraction(found["sd"], percent))


def _fraction(number: str, percent: bool) -> float:
    value = float(number.replace(",", ""))
    # Format as decimal text, because 86.7 / 100 is 0.8670000000000001.
    return float(f"{value / 100:.12g}") if percent else value
