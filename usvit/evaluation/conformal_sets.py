"""Section ``conformal`` of metrics.json: prediction sets that inner validation patients calibrate.

The sets are of two classes, the positive one and the rest, as are the decisions of ``usvit score``. The patients that
calibrate a fold are never those that it is tested on.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usvit.errors import LeakageError
from usvit.estimate import Estimate
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.thresholds import choosing_rows, refuse_leak
from usvit.metrics.checks import group_codes
from usvit.metrics.conformal import GUARANTEES, Guarantee, SetThreshold, patient_coverage, set_threshold
from usvit.metrics.proportions import clustered_share, share
from usvit.records import ConformalRecord, SetsOfClass, SetsOfFold

_ALPHAS = (0.1, 0.05)


def conformal_section(table: pd.DataFrame, positive: str) -> list[ConformalRecord]:
    """Calibrate sets on the inner validation patients of each fold, and test them on its test patients.

    Args:
        table: a predictions table; the images that choose the thresholds of operating points calibrate the sets.
        positive: one of the classes.

    Returns:
        One entry for each alpha and guarantee. If a fold has too few patients of a class, nothing is pooled, and
        ``reason`` says why.
    """
    return [_conformal(table, positive, alpha, guarantee) for alpha in _ALPHAS for guarantee in GUARANTEES]


def _conformal(table: pd.DataFrame, positive: str, alpha: float, guarantee: Guarantee) -> ConformalRecord:
    test = rows_of(table, "test")
    source, chooser = choosing_rows(table)
    k = test.index(positive)
    folds: list[SetsOfFold] = []
    sets: list[SetsOfClass] = []
    reason = None
    try:
        bounds = _bounds(test, chooser, k, alpha, guarantee)
    except LeakageError as error:
        reason = str(error)
    else:
        folds = [_fold(fold, *pair) for fold, pair in bounds.items()]
        without = [
            f"fold {fold}: {name}: {one.reason}"
            for fold, pair in bounds.items()
            for name, one in zip(_names(positive), pair, strict=True)
            if one.reason
        ]
        if without:
            reason = f"no sets in {'; '.join(without)}"
        else:
            ends = np.array([_ends(*bounds[int(fold)]) for fold in test.fold], dtype=np.float64)
            sets = judged_sets(sets_of(test.prob[:, k], ends[:, 0], ends[:, 1]), test, positive, guarantee)
    return ConformalRecord(alpha=alpha, guarantee=guarantee, source=source, folds=folds, sets=sets, reason=reason)


def sets_of(prob: np.ndarray, positive_from: ArrayLike, rest_up_to: ArrayLike) -> np.ndarray:
    """Return (n, 2) bool, whether the positive class and the rest are in the set of each image.

    Args:
        prob: (n,) probability of the positive class.
        positive_from: the positive class is in the set from this probability on; one number, or (n,).
        rest_up_to: the rest is in the set up to this probability of the positive class.
    """
    return np.stack([prob >= np.asarray(positive_from), prob <= np.asarray(rest_up_to)], axis=1)


def judged_sets(sets: np.ndarray, rows: Rows, positive: str, guarantee: Guarantee) -> list[SetsOfClass]:
    """Compute coverage, size and kind of the sets: for images of the positive class, of the rest, and for all."""
    reference = rows.label == rows.index(positive)
    right = np.where(reference, sets[:, 0], sets[:, 1])
    size = sets.sum(axis=1)
    group = group_codes(rows.group, len(rows))[0]  # of numbers, groups are found faster than of names

    def among(at: np.ndarray, hits: np.ndarray, of: str) -> Estimate:
        return share(hits[at], group[at], of=of, interval=clustered_share)

    found = []
    for name, at in zip((*_names(positive), "all"), (reference, ~reference, np.ones_like(reference)), strict=True):
        images = f"images of {name}"
        found.append(
            SetsOfClass(
                reference=name,
                n_images=int(at.sum()),
                coverage=patient_coverage(right[at], group[at], guarantee=guarantee),
                mean_size=float(size[at].mean()) if at.any() else None,
                one_class=among(at, size == 1, images),
                both_classes=among(at, size == 2, images),
                no_class=among(at, size == 0, images),
                one_class_right=among(at & (size == 1), right, f"{images} with one class in the set"),
            )
        )
    return found


def _bounds(
    test: Rows, chooser: Mapping[int, Rows], k: int, alpha: float, guarantee: Guarantee
) -> dict[int, tuple[SetThreshold, SetThreshold]]:
    found = {}
    for fold, rows in chooser.items():
        refuse_leak(rows, test[test.fold == fold], fold)
        found[fold] = set_thresholds(rows.label == k, rows.prob[:, k], rows.group, alpha=alpha, guarantee=guarantee)
    return found


def set_thresholds(
    positive: np.ndarray, prob: np.ndarray, group: np.ndarray, *, alpha: float, guarantee: Guarantee
) -> tuple[SetThreshold, SetThreshold]:
    """Return the thresholds of the positive class, and of the rest, whose score is minus the probability.

    Args:
        positive: (n,) bool, the reference of the calibration images.
        prob: (n,) probability of the positive class.
        group: (n,) the patient of each image.
        alpha, guarantee: see ``usvit.metrics.conformal``.
    """
    up = set_threshold(prob[positive], group[positive], alpha=alpha, guarantee=guarantee)
    down = set_threshold(-prob[~positive], group[~positive], alpha=alpha, guarantee=guarantee)
    return up, down


def _ends(up: SetThreshold, down: SetThreshold) -> tuple[float | None, float | None]:
    return up.threshold, None if down.threshold is None else -down.threshold


def _fold(fold: int, up: SetThreshold, down: SetThreshold) -> SetsOfFold:
    first, last = _ends(up, down)
    return SetsOfFold(fold=fold, positive_from=first, rest_up_to=last, n_positive=up.n_patients, n_rest=down.n_patients)


def _names(positive: str) -> tuple[str, str]:
    return positive, f"not {positive}"
