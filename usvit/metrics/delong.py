"""DeLong's variance of the AUC, for independent images.

For several images per patient use ``clustered``: DeLong's variance is then too small.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from usvit.metrics.basic import Value
from usvit.metrics.checks import check_positive, check_score
from usvit.metrics.intervals import Z, all_or_none_interval, logit_interval, undefined, with_interval
from usvit.metrics.support import Support

METHOD = "DeLong, logit"
DIFFERENCE_METHOD = "DeLong, paired"
ABSENT = "no positive or no negative case"

NO_VARIANCE = 1e-15
"""Variances below this are treated as 0: rounding gives up to about 1e-18; the variance of an AUC is far above it."""


def placements(positive: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the placement of each case among the other class; ties count one half, and each mean is the AUC.

    Args:
        positive: (n,) bool, with both values.
        score: (n,) finite float64.

    Returns:
        (m,) for each positive, in order: the share of negatives below it; and (n - m,) for each
        negative: the share of positives above it. V10 and V01 of DeLong et al. O(n log n).
    """
    up, down = score[positive], score[~positive]
    return _share_below(up, np.sort(down)), 1 - _share_below(down, np.sort(up))


def delong(positive: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray] | None:
    """Compute the AUCs of one or more models on the same independent cases, and their covariance.

    Args:
        positive: (n,) bool.
        scores: (n, R) float, one column per model.

    Returns:
        (R,) AUCs in [0, 1] and (R, R) covariance, NaN if a class has a single case; None if
        a class is absent.

    Raises:
        ValueError: a score is not finite (the index is named), or the shapes do not fit.

    Source: DeLong, DeLong & Clarke-Pearson (1988), Biometrics 44:837, eq. 4-6; placements by sorting
    as in Sun & Xu (2014), IEEE Signal Processing Letters 21:1389.
    """
    truth = check_positive(positive)
    columns = np.asarray(scores, dtype=np.float64)
    if columns.ndim != 2:
        raise ValueError(f"scores have shape {columns.shape}, expected (n, R)")
    if truth.all() or not truth.any():
        return None
    pairs = [placements(truth, check_score(column, len(truth))) for column in columns.T]
    v10, v01 = np.stack([one[0] for one in pairs]), np.stack([one[1] for one in pairs])  # (R, m), (R, n - m)
    areas = v10.mean(axis=1)
    if min(v10.shape[1], v01.shape[1]) < 2:
        return areas, np.full((len(pairs), len(pairs)), np.nan)
    covariance = np.atleast_2d(np.cov(v10)) / v10.shape[1] + np.atleast_2d(np.cov(v01)) / v01.shape[1]
    return areas, covariance


def delong_auc(positive: ArrayLike, score: ArrayLike) -> Value:
    """Compute the AUC of independent cases with DeLong's variance and an interval on the logit scale.

    Args:
        positive: (n,) bool.
        score: (n,) float, higher for positive.

    Returns:
        A Value, n_groups being n. Null with a reason if a class is absent. An AUC of 0 or 1 has
        the bound of ``area_value``; with a single case of a class, or equal scores, there is no interval.

    Raises:
        ValueError: a score is not finite (the index is named), or the shapes do not fit.
    """
    truth = check_positive(positive)
    found = delong(truth, check_score(score, len(truth))[:, None])
    if found is None:
        return undefined(ABSENT, len(truth))
    pairs = int(min(truth.sum(), (~truth).sum()))
    return area_value(found[0][0], found[1][0, 0], disjoint_pairs=pairs, n_groups=len(truth), method=METHOD)


def delong_difference(positive: ArrayLike, score_a: ArrayLike, score_b: ArrayLike) -> Value:
    """Compute the AUC of model A minus that of model B on the same independent cases, with p-value.

    Returns:
        A Value with "p" (two-sided, normal), as ``difference_value`` describes; null if a class is absent.

    Raises:
        ValueError: a score is not finite (the index is named), or the shapes do not fit.
    """
    truth = check_positive(positive)
    a, b = check_score(score_a, len(truth)), check_score(score_b, len(truth))
    found = delong(truth, np.stack([a, b], axis=1))
    if found is None:
        return undefined(ABSENT, len(truth))
    (area_a, area_b), covariance = found
    variance = 0.0 if np.array_equal(a, b) else float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    return difference_value(area_a - area_b, variance, n_groups=len(truth), method=DIFFERENCE_METHOD)


def area_value(
    value: float, variance: float, *, disjoint_pairs: int, n_groups: int, method: str, support: Support | None = None
) -> Value:
    """Create the Value of an AUC, or of a mean of AUCs, from its variance (NaN: not estimable).

    An AUC of 0 or 1 has an estimated variance of 0, which would claim certainty. Instead, the bound uses
    ``disjoint_pairs``, the pairs of a positive and a negative that share no group. Each pair is ordered correctly
    with probability AUC, independently of the others, so all are with probability AUC^pairs. The bound is Clopper
    and Pearson's for all of so many pairs; it is exact or wider.
    """
    if value in (0.0, 1.0):
        bound = all_or_none_interval(value, disjoint_pairs)
        why = f"every pair is ordered {'correctly' if value == 1 else 'wrongly'}, so the variance is 0"
        if bound is None:
            return with_interval(value, None, method=method, n_groups=n_groups, reason=f"{why}, in a single group")
        label = f"Clopper-Pearson on {disjoint_pairs} disjoint pairs of groups"
        return with_interval(value, bound, method=label, n_groups=n_groups, reason=why, support=support)
    if np.isnan(variance):
        why = "the variance needs two groups with a positive and two with a negative case"
    else:
        why = "all cases of a class have the same placement, so the variance is 0"
    ci95 = logit_interval(value, variance) if variance > NO_VARIANCE else None
    return with_interval(value, ci95, method=method, n_groups=n_groups, reason="" if ci95 else why, support=support)


def difference_value(
    difference: float, variance: float, *, n_groups: int, method: str, support: Support | None = None
) -> Value:
    """Create the Value of a difference of two AUCs: normal interval clipped to [-1, 1], two-sided p.

    With a variance of 0 there is no interval. Then p is 1 if the difference is 0 (models that rank alike); otherwise
    it is left out.
    """
    if not variance > NO_VARIANCE:
        if np.isnan(variance):
            why = "the variance needs two groups with a positive and two with a negative case"
        else:
            why = "the models differ in no group, or equally in all groups, so the variance is 0"
        p = 1.0 if abs(difference) < 1e-12 and not np.isnan(variance) else None
        return with_interval(difference, None, method=method, n_groups=n_groups, reason=why, p=p)
    error = np.sqrt(variance)
    ci95 = max(difference - Z * error, -1.0), min(difference + Z * error, 1.0)
    p = 2 * float(norm.sf(abs(difference) / error))
    return with_interval(difference, ci95, method=method, n_groups=n_groups, p=p, support=support)


def _share_below(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    below, up_to = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return (below + up_to) / (2 * len(ordered))
