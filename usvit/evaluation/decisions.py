"""Decisions of a run on its test images: by the most probable class, and at each nested operating point."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from usvit.errors import LeakageError
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.predictions import repeats_of
from usvit.evaluation.thresholds import operating_points
from usvit.metrics.basic import decide
from usvit.metrics.threshold_choice import RULES
from usvit.records import OperatingPointRecord

MOST_PROBABLE = "most probable class"
KEY = ["dataset", "image_id"]


@dataclass(frozen=True)
class Decided:
    """Test images and the decisions on them.

    Attributes:
        rows: n images.
        positive: the positive class.
        called: rule -> (n,) bool, whether the image is called positive.
        reasons: rule without decisions -> the reason.
    """

    rows: Rows
    positive: str
    called: dict[str, np.ndarray]
    reasons: dict[str, str]

    @property
    def reference(self) -> np.ndarray:
        """Images of the positive class, (n,) bool."""
        return self.rows.label == self.rows.index(self.positive)


def decided_at(rows: Rows, positive: str, points: Iterable[OperatingPointRecord]) -> Decided:
    """Decide at operating points that are already known.

    Args:
        rows: the test images.
        positive: one of the classes.
        points: the operating points with their thresholds.
    """
    k = rows.index(positive)
    called, reasons = {MOST_PROBABLE: decide(rows.prob) == k}, {}
    for one in points:
        threshold = {fold.fold: fold.threshold for fold in one.folds}
        if one.pooled is None:
            reasons[one.rule] = one.reason or ""
        else:
            called[one.rule] = rows.prob[:, k] >= np.array([threshold[int(fold)] for fold in rows.fold])
    return Decided(rows, positive, called, reasons)


def decided_of(table: pd.DataFrame, positive: str, classes: Iterable[str]) -> Decided:
    """Decide on a predictions table with newly chosen thresholds; rows are sorted by dataset and image_id.

    Raises:
        UsvitError: as ``rows_of``; ``positive`` is no class.
    """
    table = table.sort_values(KEY, kind="stable")
    points, why = points_of(table, positive)
    found = decided_at(rows_of(table, "test", tuple(classes)), positive, points)
    found.reasons.update(why)
    return found


def decided_by_repeat(table: pd.DataFrame, positive: str, classes: Iterable[str]) -> list[Decided]:
    """Decide on each repeat of a cross-validation by its own thresholds; arguments and raises as ``decided_of``."""
    repeats, names = repeats_of(table), tuple(classes)
    return [decided_of(table[repeats == one], positive, names) for one in np.unique(repeats)]


def points_of(table: pd.DataFrame, positive: str) -> tuple[list[OperatingPointRecord], dict[str, str]]:
    """Choose the thresholds of a predictions table.

    Returns:
        The operating points; and, if a group both chooses a threshold and is decided by it, so that only fixed
        thresholds are possible, the reason for each other rule.

    Raises:
        UsvitError: as ``rows_of``; ``positive`` is no class.
    """
    try:
        return operating_points(table, positive=positive), {}
    except LeakageError as error:
        fixed = [rule for rule in RULES if rule.kind == "fixed"]
        why = {rule.name: str(error) for rule in RULES if rule.kind != "fixed"}
        return operating_points(table, positive=positive, rules=fixed), why
