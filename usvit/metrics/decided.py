"""What a run decides about each test image: by the most probable class, and at each nested operating point."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from usvit.errors import LeakageError
from usvit.metrics.points import decide
from usvit.metrics.rows import Rows, rows_of
from usvit.metrics.thresholds import RULES, operating_points

MOST_PROBABLE = "most probable class"
KEY = ["dataset", "image_id"]


@dataclass(frozen=True)
class Decided:
    """Test images and what was decided about each.

    Attributes:
        rows: n images.
        positive: the class that was decided for, or against.
        called: how a decision came about -> (n,) bool, whether the image is called positive.
        reasons: the same of those ways that give no decision -> why.
    """

    rows: Rows
    positive: str
    called: dict[str, np.ndarray]
    reasons: dict[str, str]

    @property
    def reference(self) -> np.ndarray:
        """(n,) bool, the images of the positive class."""
        return self.rows.label == self.rows.index(self.positive)


def decided_at(rows: Rows, positive: str, points: Iterable[Mapping[str, Any]]) -> Decided:
    """Decisions at operating points that are known already.

    Args:
        rows: the test images.
        positive: one of the classes.
        points: as ``operating_points`` of metrics.json has them: rule, folds with fold and threshold, pooled, reason.
    """
    k = rows.index(positive)
    called, reasons = {MOST_PROBABLE: decide(rows.prob) == k}, {}
    for one in points:
        threshold = {fold["fold"]: fold["threshold"] for fold in one["folds"]}
        if one["pooled"] is None:
            reasons[one["rule"]] = one["reason"]
        else:
            called[one["rule"]] = rows.prob[:, k] >= np.array([threshold[int(fold)] for fold in rows.fold])
    return Decided(rows, positive, called, reasons)


def decided_of(table: pd.DataFrame, positive: str, classes: Iterable[str]) -> Decided:
    """Decisions of a predictions table, its thresholds chosen again; in the order of dataset and image_id.

    Raises:
        UsvitError: as ``rows.rows_of``; ``positive`` is no class.
    """
    table = table.sort_values(KEY, kind="stable")
    rows = rows_of(table, "test", tuple(classes))
    try:
        points, why = operating_points(table, positive=positive), ""
    except LeakageError as error:
        fixed = [rule for rule in RULES if rule.kind == "fixed"]
        points, why = operating_points(table, positive=positive, rules=fixed), str(error)
    found = decided_at(rows, positive, [asdict(one) for one in points])
    if why:
        found.reasons.update({rule.name: why for rule in RULES if rule.kind != "fixed"})
    return found
