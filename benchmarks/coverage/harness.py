"""Rows of simulated studies, and the share of their intervals that contain the true value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, SupportsFloat, TypeVar

import numpy as np

from usvit.estimate import Estimate

R = TypeVar("R")


@dataclass(frozen=True)
class Row:
    """What is simulated. The title of a row names the fields that differ from their defaults."""

    def __str__(self) -> str:
        named = ((field.name.replace("_", " "), getattr(self, field.name), field.default) for field in fields(self))
        return ", ".join(_title(name, value) for name, value, default in named if value != default)


def _title(name: str, value: Any) -> str:
    if value is True:
        return name
    if value is None:
        return f"uneven {name}"
    return f"{name} {value:,}" if isinstance(value, int | float) else str(getattr(value, "name", value))


class Interval(NamedTuple):
    """Both ends of an interval, NaN if there is none, and the true value."""

    low: float
    high: float
    truth: float

    @property
    def holds(self) -> bool:
        return self.low <= self.truth <= self.high


class Spread(NamedTuple):
    """A number whose distribution over the studies is shown."""

    value: float


Outcome = Mapping[str, "Interval | Spread | float"]
"""Name of a column -> interval, number, or whether a test rejects. A column that does not apply is absent."""


def interval(value: Estimate | None, truth: SupportsFloat) -> Interval:
    """Return the interval of an Estimate beside the true value."""
    low, high = (value and value.ci95) or (np.nan, np.nan)
    return Interval(low, high, float(truth))


def rejects(value: Estimate, alpha: float = 0.05) -> bool:
    return value.p is not None and value.p < alpha


@dataclass(frozen=True)
class Table(Generic[R]):
    """Rows, a function (row, number of the study) -> outcome, and how many studies a row has by default."""

    rows: Sequence[R]
    study: Callable[[R, int], Outcome]
    n_studies: int = 400

    def print(self, n_studies: int, first: int, rows: Sequence[int]) -> None:
        """Print the rows with these numbers, whose studies are numbered from ``first``."""
        columns: list[str] = []
        for number in rows:
            found: dict[str, list[Interval | Spread | float]] = {}
            for k in range(first, first + n_studies):
                for name, one in self.study(self.rows[number], k).items():
                    found.setdefault(name, []).append(one)
            if not columns:
                columns = list(found)
                print(f"| study | {' | '.join(columns)} |\n" + "|---" * (len(columns) + 1) + "|")
            cells = [cell(found[name], n_studies) if name in found else "–" for name in columns]
            print(f"| {self.rows[number]} | {' | '.join(cells)} |", flush=True)


def cell(found: Sequence[Interval | Spread | float], n_studies: int) -> str:
    """Format the outcomes of one column.

    An interval becomes "coverage (mean length)", or if each study has its own true value "mean truth: coverage,
    coverage of the mean truth (mean length)"; a number that is spread "mean (SD; 5 % to 95 %)"; any other its mean.
    """
    table, absent = np.array(found, dtype=float), n_studies - len(found)
    if isinstance(found[0], Interval):
        table, truths = table[~np.isnan(table[:, 0])], table[:, 2]
        absent = n_studies - len(table)
        low, high, truth = table.T
        held = f"{np.mean((low <= truth) & (truth <= high)):.3f}" if len(table) else "none"
        if np.ptp(truths) > 0:
            mean = truths.mean()
            held = f"{mean:.3f}: {held}, {np.mean((low <= mean) & (mean <= high)):.3f}"
        return f"{held} ({np.mean(high - low):.3f}{f'; {absent} without' if absent else ''})" if len(table) else held
    without = f" [{absent} without]" if absent else ""
    if isinstance(found[0], Spread):
        low, high = np.quantile(table, [0.05, 0.95])
        return f"{table.mean():.3f} ({table.std():.3f}; {low:.3f} to {high:.3f}){without}"
    return f"{table.mean():.3f}{without}"
