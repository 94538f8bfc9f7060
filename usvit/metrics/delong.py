"""DeLong's placements, and the intervals of AUCs and of their differences. ``clustered`` computes the variances."""

import numpy as np
from scipy.stats import norm

from usvit.estimate import Estimate
from usvit.metrics.intervals import Z, all_or_none_interval, logit_interval, with_interval
from usvit.metrics.support import Support

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


def area_value(
    value: float, variance: float, *, disjoint_pairs: int, n_groups: int, method: str, support: Support | None = None
) -> Estimate:
    """Create the Estimate of an AUC, or of a mean of AUCs, from its variance (NaN: not estimable).

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
) -> Estimate:
    """Create the Estimate of a difference of two AUCs: normal interval clipped to [-1, 1], two-sided p.

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
