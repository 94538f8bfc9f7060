"""Tables of sweeps: shape, compute and loss of each training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.files import read_csv
from usvit.upstream.scaling.shapes import DIMENSIONS, TITLES
from usvit.upstream.scaling.surface import Array
from usvit.upstream.scaling.sweeps import FEWEST

SAME_BUDGET = 0.05
"""Trainings whose compute differs by less than this share have the same budget: steps are whole numbers."""
MOST_POINTS = 100_000
_MISSING = ("", "na", "n/a", "nan", "none", "null", "-")
"""Cells of the loss, in lower case, that stand for a training without one."""


@dataclass(frozen=True)
class SweepTable:
    """The trainings of a sweep; arrays have one entry for each."""

    path: Path
    dimensions: tuple[str, ...]
    """Those that vary."""
    constant: dict[str, float]
    """Those that do not, with their values."""
    shapes: Array
    """Values of ``dimensions``, as (N, K)."""
    compute: Array
    losses: Array
    names: tuple[str | None, ...]
    groups: tuple[str | None, ...]
    left_out: tuple[str, ...]
    """Trainings without a loss."""
    ignored: tuple[str, ...]
    """Dimensions that vary in the table and are not to be fitted."""

    @property
    def n_budgets(self) -> int:
        return len(budgets_of(self.compute))


def budgets_of(compute: Array) -> list[float]:
    """Return the different budgets, smallest first: the mean compute of trainings that differ by less than 5 %."""
    groups: list[list[float]] = []
    for one in sorted(float(value) for value in compute):
        if groups and one <= groups[-1][0] * (1 + SAME_BUDGET):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [sum(group) / len(group) for group in groups]


def read_sweep(path: Path, loss: str, compute: str, dimensions: Sequence[str], drop_missing: bool) -> SweepTable:
    """Read the table of a sweep: ``study.csv``, or any CSV with columns for shape, compute and loss.

    Args:
        path: The table.
        loss: Column of the loss.
        compute: Column of the compute, in any unit.
        dimensions: Columns of the dimensions, among ``DIMENSIONS``.
        drop_missing: Leave out trainings without a loss instead of refusing them.

    Raises:
        UsvitError: A column is missing, a value is not a number above 0, losses are missing, or there are too few
            budgets or values of a dimension for a fit. The message names the rows.
    """
    if wrong := [name for name in dimensions if name not in DIMENSIONS]:
        raise unknown("dimension", wrong[0], DIMENSIONS)
    if not dimensions or len({*dimensions, compute, loss}) < len(dimensions) + 2:
        raise UsvitError("Give at least one dimension, and each column once: dimensions, compute and loss all differ.")
    table = read_csv(
        path, hint="Give the study.csv of 'usvit study', or a table with shape, compute and loss.", follow=True
    )
    wanted = [*dimensions, compute, loss]
    for name in wanted:
        if name not in table.columns:
            raise unknown("column", name, [str(one) for one in table.columns], f"It is not in {path}.")
    if not 0 < len(table) <= MOST_POINTS:
        raise UsvitError(f"{path} has {len(table):,} rows; a fit takes 1 to {MOST_POINTS:,}.")
    names = [_label(table, place, dimensions) for place in range(len(table))]
    numbers = table[wanted].apply(pd.to_numeric, errors="coerce")
    missing = numbers[loss].isna().to_numpy()
    said_so = table[loss].str.strip().str.lower().isin(_MISSING)
    if (missing & ~said_so).any():
        place = int(np.flatnonzero(missing & ~said_so)[0])
        raise UsvitError(f"{path}, {names[place]}: the {loss} '{table[loss].iloc[place]}' is not a number.")
    if missing.any() and not drop_missing:
        which = [names[place] for place in np.flatnonzero(missing)]
        raise UsvitError(
            f"{path}: {len(which)} of {len(table)} trainings have no {loss}: {_some(which)}. Run the study again, "
            "which continues it, or fit the others with --drop-missing."
        )
    kept = numbers[~missing]
    for name in wanted:
        values = kept[name].to_numpy(dtype=float)
        bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(bad):
            row = int(kept.index[int(bad[0])])
            raise UsvitError(
                f"{path}, {names[row]}: {name} is '{table[name].iloc[row]}', and a fit needs a number above 0."
            )
    places = [int(one) for one in kept.index]
    varying = tuple(name for name in dimensions if kept[name].nunique() > 1)
    found = SweepTable(
        path,
        varying,
        {name: float(kept[name].iloc[0]) for name in dimensions if name not in varying} if len(kept) else {},
        kept[list(varying)].to_numpy(dtype=float),
        kept[compute].to_numpy(dtype=float),
        kept[loss].to_numpy(dtype=float),
        tuple(_text(table, "row", place) for place in places),
        tuple(_text(table, "group", place) for place in places),
        tuple(names[place] for place in np.flatnonzero(missing)),
        tuple(name for name in DIMENSIONS if name not in dimensions and name in table and table[name].nunique() > 1),
    )
    _check(found)
    return found


def _check(sweep: SweepTable) -> None:
    k = len(sweep.dimensions)
    if not k:
        raise UsvitError(f"{sweep.path}: no dimension of the shape varies, so that there is nothing to fit.")
    for place, name in enumerate(sweep.dimensions):
        values = np.unique(sweep.shapes[:, place])
        if len(values) < FEWEST:
            raise UsvitError(
                f"{sweep.path}: the {TITLES[name]} has only the values {', '.join(f'{one:g}' for one in values)}, and "
                f"a fit needs {FEWEST}. Add networks to the sweep, or leave the {TITLES[name]} out of the fit if it is "
                "the same in all."
            )
    if sweep.n_budgets < FEWEST:
        several = ", ".join(f"{one:.4g}" for one in budgets_of(sweep.compute))
        budgets = "budget" if sweep.n_budgets == 1 else "budgets"
        raise UsvitError(
            f"{sweep.path} has {sweep.n_budgets} compute {budgets} ({several}), and a fit needs {FEWEST}: "
            "with fewer, the data exponent c and the irreducible loss cannot be told apart. "
            "Train the same shapes with other budgets too (usvit shape plan --budget ...)."
        )
    if len(sweep.losses) <= 4 * k + 3:
        raise UsvitError(
            f"{sweep.path} has {len(sweep.losses)} trainings with a loss, and the form of {k} "
            f"{'dimension' if k == 1 else 'dimensions'} has {4 * k + 3} parameters. Add trainings, or fit fewer "
            "dimensions."
        )


def _label(table: pd.DataFrame, place: int, dimensions: Sequence[str]) -> str:
    """Name a row of the table: its line, and its name or shape."""
    given = _text(table, "row", place)
    shape = ", ".join(f"{name} {table[name].iloc[place]}" for name in dimensions)
    return f"line {place + 2} ({given or shape})"


def _text(table: pd.DataFrame, column: str, place: int) -> str | None:
    return str(table[column].iloc[place])[:300] or None if column in table.columns else None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
