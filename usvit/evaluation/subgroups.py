"""Figures by data set, device, size, BI-RADS or any other column."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.evaluation.pooled_figures import figure_points
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.predictions import first_repeat
from usvit.metrics.bootstrap import FigureValues
from usvit.metrics.checks import group_codes
from usvit.metrics.support import rarest, support_of
from usvit.records import Level, MainFigures
from usvit.records.values import ShareValue

NOT_RECORDED = "(not recorded)"
KEY = ["dataset", "image_id"]
FIGURES = tuple(MainFigures.model_fields)
_MOST_LEVELS = 20
"""A numeric column with more distinct values than this is treated as measured and needs limits."""
_MOST_NAMES = 100
"""A column with more distinct values than this identifies images and cannot make subgroups."""

Measure = Callable[[np.ndarray, np.ndarray, np.ndarray], FigureValues]
"""Function of (n,) int labels, (n, K) probabilities and (n,) groups, n >= 1, that returns figures."""


def subgroups(
    table: pd.DataFrame,
    by: str,
    *,
    positive: str,
    columns: pd.DataFrame | None = None,
    limits: Sequence[float] | None = None,
    classes: Sequence[str] | None = None,
    measure: Measure | None = None,
) -> list[Level]:
    """Compute every figure in every subgroup of the test images.

    Every level is included, however small, and so are the images without a recorded value. Among many subgroups, some
    differ by chance: ``subgroup_differences`` tests them, with Holm's correction.

    Args:
        table: a predictions table; only rows of split test are used.
        by: name of a column of ``table`` or of ``columns``.
        positive: one of the classes.
        columns: more columns of the images, by dataset and image_id, such as the manifest; images that it
            does not contain count as not recorded.
        limits: ascending numbers that cut a measured column into classes: [10, 20] makes
            "< 10", "10 to < 20" and ">= 20".
        classes: the K names in the order that resolves ties; the table's by default.
        measure: the function that computes the figures; ``pooled_figures.figure_points`` by default.

    Returns:
        One per level in natural order ("4a" before "4b", "9" before "10"; cut classes from the lowest),
        "(not recorded)" last.

    Raises:
        UsvitError: see ``rows_of``; ``positive`` is not a class; the column is in neither table; its
            table lacks a key column, holds an image twice or none of these images; ``limits`` are
            missing for a measured column, not ascending, or given for a column with text; the column has more
            than ``_MOST_NAMES`` names.
    """
    table = first_repeat(table)
    rows = rows_of(table, "test", classes)
    rows.index(positive)
    level = levels_of(table[table["part"] == "test"], by, columns=columns, limits=limits)

    def points(label: np.ndarray, prob: np.ndarray, group: np.ndarray) -> FigureValues:
        return figure_points(label, prob, group, classes=rows.classes, positive=positive)

    found = []
    for value in _ordered(level, limits):
        part = rows[level == value]
        of_class = {name: part[part.label == k] for k, name in enumerate(part.classes)}
        class_groups = {name: images.n_groups for name, images in of_class.items()}
        figures = (measure or points)(part.label, part.prob, part.group)
        found.append(
            Level(
                level=str(value),
                n_images=len(part),
                n_groups=part.n_groups,
                class_images={name: len(images) for name, images in of_class.items()},
                class_groups=class_groups,
                warning=_warning(part),
                figures=MainFigures[ShareValue](**{name: figures.values[name] for name in FIGURES}),
            )
        )
    return found


def levels_of(
    test: pd.DataFrame, by: str, *, columns: pd.DataFrame | None = None, limits: Sequence[float] | None = None
) -> np.ndarray:
    """Return the (n,) subgroup of each row of a predictions table; arguments and errors as ``subgroups``."""
    values = _column(test, by, columns)
    return _cut(values, by, limits) if limits is not None else _named(values, by)


def _column(test: pd.DataFrame, by: str, columns: pd.DataFrame | None) -> pd.Series:
    """Return the value of the column for each test image, in the order of ``test``."""
    if columns is None or by not in columns:
        if by in test:
            return test[by].reset_index(drop=True)
        names = {*test.columns, *(columns.columns if columns is not None else ())} - {*KEY} | {"dataset"}
        raise unknown("column", by, names)
    if missing := [name for name in KEY if name not in columns]:
        raise UsvitError(f"The table with column '{by}' has no column {', '.join(missing)} to join its rows by.")
    if by in KEY:
        return test[by].reset_index(drop=True)
    keyed = columns[[*KEY, by]].astype(dict.fromkeys(KEY, str))
    double = keyed.duplicated(KEY)
    if double.any():
        first = keyed[double].iloc[0]
        raise UsvitError(
            f"The table with column '{by}' holds image '{first['image_id']}' of {first['dataset']} twice; "
            "each image needs one row."
        )
    found = test[KEY].astype(str).merge(keyed, on=KEY, how="left", validate="many_to_one", indicator=True)
    if not (found["_merge"] == "both").any():
        raise UsvitError(
            f"The table with column '{by}' holds none of the predicted images; 'dataset' and 'image_id' must be "
            f"the same in both files. Predicted: {test['dataset'].iloc[0]}/{test['image_id'].iloc[0]}."
        )
    return found[by]


def _named(values: pd.Series, by: str) -> np.ndarray:
    """Return the (n,) levels of a categorical column."""
    level = np.array([_text(value) for value in values], dtype=object)
    numbers = pd.to_numeric(pd.Series(level[level != NOT_RECORDED]), errors="coerce")
    if numbers.nunique() > _MOST_LEVELS and numbers.notna().all():
        raise UsvitError(
            f"Column '{by}' holds {numbers.nunique()} different numbers, from {numbers.min():g} to {numbers.max():g}: "
            "give limits to cut it into classes (--by COLUMN=10,20)."
        )
    if len(set(level.tolist())) > _MOST_NAMES:
        raise UsvitError(
            f"Column '{by}' holds {len(set(level.tolist()))} different values such as '{level[0]}': too many to be "
            f"subgroups (at most {_MOST_NAMES})."
        )
    return level


def _cut(values: pd.Series, by: str, limits: Sequence[float]) -> np.ndarray:
    """Return the (n,) levels of a measured column."""
    edges = np.asarray(limits, dtype=np.float64)
    if not len(edges) or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
        raise UsvitError(f"The limits of column '{by}' must be ascending numbers, not {list(limits)}.")
    numbers = pd.to_numeric(values.mask(values.map(_text) == NOT_RECORDED), errors="coerce").to_numpy(np.float64)
    words = np.isnan(numbers) & (values.map(_text) != NOT_RECORDED).to_numpy()
    if words.any():
        raise UsvitError(
            f"Column '{by}' holds '{values[words].iloc[0]}', which is not a number and cannot be cut by limits."
        )
    names = np.array([*_cut_names(edges), NOT_RECORDED], dtype=object)
    return names[np.where(np.isnan(numbers), len(edges) + 1, np.searchsorted(edges, numbers, side="right"))]


def _cut_names(edges: np.ndarray) -> list[str]:
    between = [f"{low:g} to < {high:g}" for low, high in pairwise(edges.tolist())]
    return [f"< {edges[0]:g}", *between, f">= {edges[-1]:g}"]


def _text(value: object) -> str:
    """Convert a cell to the name of a level; 4.0 (an integer in a column with missing values) becomes 4."""
    if value is None or value is pd.NA or value != value or not str(value).strip():
        return NOT_RECORDED
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _ordered(level: np.ndarray, limits: Sequence[float] | None) -> list[str]:
    found = set(level.tolist())
    last = [NOT_RECORDED] if NOT_RECORDED in found else []
    if limits is not None:
        return [name for name in _cut_names(np.asarray(limits, dtype=np.float64)) if name in found] + last

    def natural(name: str) -> list[tuple[int, int, str]]:
        pieces = re.findall(r"[0-9]+|[^0-9]+", name)
        return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]

    return sorted(found - {NOT_RECORDED}, key=natural) + last


def _warning(rows: Rows) -> str | None:
    """Return a warning if the subgroup, or its rarest class, has few groups."""
    code = group_codes(rows.group, len(rows))[0]
    if warning := support_of(code).warning:
        return warning
    there = np.unique(rows.label).tolist()
    return rarest(rows.label, code, {k: f"images of class '{rows.classes[k]}'" for k in there}).warning
