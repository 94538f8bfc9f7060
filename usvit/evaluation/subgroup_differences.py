"""Differences between subgroups of a run: each level against all other images, with Holm's correction."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import t as student

from usvit.metrics.basic import Value, decide
from usvit.metrics.clustered import AreaParts, area_parts
from usvit.metrics.delong import NO_VARIANCE
from usvit.metrics.intervals import ALPHA, undefined, with_interval
from usvit.metrics.paired_tests import holm
from usvit.metrics.support import Support, rarest, support_of

FIGURES = ("auc", "accuracy")


def level_differences(
    label: np.ndarray, prob: np.ndarray, group: np.ndarray, level: np.ndarray, *, positive: int
) -> list[dict[str, Any]]:
    """Compute the AUC and the accuracy of each level minus those of all other images.

    Args:
        label: (n,) int, index of the reference class.
        prob: (n, K) probabilities.
        group: (n,) int or str, the patient (or near-duplicate cluster) of each image; a group may have images in
            several levels.
        level: (n,) str, the subgroup of each image.
        positive: index of the class of the AUC.

    Returns:
        One entry per level, in order of the names: {"level", "against", "auc": Value, "accuracy": Value}, with "p" if
        it can be computed. With two levels, the second entry would mirror the first and is left out.
    """
    names = sorted(set(level.tolist()))
    code = np.unique(group, return_inverse=True)[1]
    right = decide(prob) == label
    if len(names) < 2:
        return []
    found = []
    for name in names[: 1 if len(names) == 2 else len(names)]:
        own = level == name
        found.append(
            {
                "level": name,
                "against": names[1] if len(names) == 2 else "all others",
                "auc": _area_difference(label == positive, prob[:, positive], code, own),
                "accuracy": _share_difference(right, code, own),
            }
        )
    return found


def correct_after_holm(tables: Mapping[Any, list[dict[str, Any]]], figures: tuple[str, ...] = FIGURES) -> int:
    """Add ``p_holm`` to every p of several tables of differences, corrected for all of them together.

    Returns:
        The number of p-values.
    """
    p = {
        (by, k, figure): entry[figure]["p"]
        for by, entries in tables.items()
        for k, entry in enumerate(entries)
        for figure in figures
        if entry[figure].get("p") is not None
    }
    for (by, k, figure), adjusted in holm(p).items():
        tables[by][k][figure]["p_holm"] = adjusted
    return len(p)


def _area_difference(positive: np.ndarray, score: np.ndarray, code: np.ndarray, own: np.ndarray) -> Value:
    n_groups = int(code.max()) + 1
    parts = [area_parts(positive[at], score[at], code[at], n_groups) for at in (own, ~own)]
    if parts[0] is None or parts[1] is None:
        return undefined("no positive or no negative image on one side", n_groups)
    sides = [_stretched(part) for part in parts if part is not None]
    support = min(
        (
            rarest(positive[at].astype(np.int64), code[at], {1: "positive images", 0: "negative images"})
            for at in (own, ~own)
        ),
        key=lambda one: one.effective,
    )
    if sides[0] is None or sides[1] is None:
        why = "the variance needs two groups with a positive and two with a negative case on either side"
        return with_interval(parts[0].value - parts[1].value, None, method="clustered", n_groups=n_groups, reason=why)
    freedom = [part.freedom for part in parts if part is not None]
    return _difference(parts[0].value - parts[1].value, (sides[0], sides[1]), freedom, n_groups, support)


def _stretched(part: AreaParts) -> np.ndarray | None:
    """Compute the (G,) contributions of the groups to the AUC; the sum of squares is its variance."""
    up, down = int(part.has_positive.sum()), int(part.has_negative.sum())
    if min(up, down) < 2:
        return None
    return np.asarray(np.sqrt(up / (up - 1)) * part.positives + np.sqrt(down / (down - 1)) * part.negatives)


def _share_difference(hits: np.ndarray, code: np.ndarray, own: np.ndarray) -> Value:
    n_groups = int(code.max()) + 1
    sides, freedom, supports = [], [], []
    for at in (own, ~own):
        there = len(np.unique(code[at]))
        if there < 2:
            why = "one group alone on one side"
            return with_interval(
                float(hits[own].mean() - hits[~own].mean()), None, method="clustered", n_groups=n_groups, reason=why
            )
        away = hits[at] - hits[at].mean()
        sides.append(np.sqrt(there / (there - 1)) * np.bincount(code[at], away, n_groups) / at.sum())
        supports.append(support_of(code[at]))
        freedom.append(max(supports[-1].effective - 1, 1.0))
    support = min(supports, key=lambda one: one.effective)
    return _difference(float(hits[own].mean() - hits[~own].mean()), (sides[0], sides[1]), freedom, n_groups, support)


def _difference(
    value: float, sides: tuple[np.ndarray, np.ndarray], freedom: list[float], n_groups: int, support: Support
) -> Value:
    """Compute Wald's interval and p of a difference from the contributions of the groups to both sides.

    Source: Obuchowski (1997), Biometrics 53:567, with the covariance of groups that occur on both sides; Welch's
    degrees of freedom from those of the sides.
    """
    method = "clustered (Obuchowski), Welch's t"
    away = sides[0] - sides[1]
    variance, each = float(away @ away), [float(side @ side) for side in sides]
    if not variance > NO_VARIANCE:
        return with_interval(value, None, method=method, n_groups=n_groups, reason="the variance is 0")
    welch = sum(each) ** 2 / sum(one**2 / df for one, df in zip(each, freedom, strict=True))
    error = float(np.sqrt(variance))
    half = float(student.ppf(1 - ALPHA / 2, welch)) * error
    p = 2 * float(student.sf(abs(value) / error, welch))
    ci95 = max(value - half, -1.0), min(value + half, 1.0)
    return with_interval(value, ci95, method=method, n_groups=n_groups, p=p, support=support)
