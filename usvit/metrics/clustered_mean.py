"""The mean of a number over images, with an interval that counts patients."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from usvit.estimate import Estimate
from usvit.metrics.checks import check_score, group_codes
from usvit.metrics.clustered_wilson import ONE_GROUP
from usvit.metrics.intervals import ALPHA, undefined, with_interval
from usvit.metrics.support import satterthwaite_freedom, support_of

METHOD = "clustered, Student"


def clustered_difference(a: ArrayLike, b: ArrayLike, group: ArrayLike) -> Estimate:
    """Compute the mean of (n,) paired differences a - b, with the interval of ``clustered_mean`` and its p-value.

    Example:
        >>> round(clustered_difference([3.0, 2.0, 4.0], [1.0, 1.0, 1.0], [0, 1, 2]).p, 4)
        0.0742
    """
    return _mean(np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64), group, tested=True)


def clustered_mean(values: ArrayLike, group: ArrayLike) -> Estimate:
    """Compute the mean of (n,) finite numbers with a Student interval from the contributions of (n,) patients.

    The variance is that of a ratio of sums over patients, G / (G - 1) times the sum of squares of each patient's
    deviations from the mean, over n^2; the degrees of freedom are Satterthwaite's.

    Returns:
        An Estimate, undefined without an image, and without an interval for a single group.

    Source: Cochran (1977), Sampling Techniques, section 6.3 (ratio estimator).

    Example:
        >>> [round(limit, 3) for limit in clustered_mean([1.0, 2.0, 3.0], [0, 1, 2]).ci95]
        [-0.484, 4.484]
    """
    return _mean(np.asarray(values, dtype=np.float64), group, tested=False)


def _mean(numbers: np.ndarray, group: ArrayLike, *, tested: bool) -> Estimate:
    if not len(numbers):
        return undefined("there are no images", 0)
    numbers = check_score(numbers, len(numbers))
    code, n_groups = group_codes(group, len(numbers))
    value = float(numbers.mean())
    if n_groups < 2:
        return with_interval(value, None, method=METHOD, n_groups=n_groups, reason=ONE_GROUP)
    away = np.bincount(code, numbers - value) / len(numbers)
    error = float(np.sqrt(n_groups / (n_groups - 1) * (away**2).sum()))
    support = support_of(code)
    freedom = satterthwaite_freedom(away, support.effective)
    half = float(stdtrit(freedom, 1 - ALPHA / 2)) * error
    p = float(2 * stdtr(freedom, -abs(value) / error)) if tested and error > 0 else None
    return with_interval(value, (value - half, value + half), method=METHOD, n_groups=n_groups, support=support, p=p)
