"""Reading times and courses of a session: means and slopes of readers, whose intervals count readers and patients.

Both are least squares within each reader. The patients' part of their covariance is that of the sums of residuals over
patients, so that several cases of a patient, and a patient who takes every reader long, are counted.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.delong import placements
from usvit.metrics.intervals import ALPHA
from usvit.metrics.reader_study import METHODS, Inference, ReaderNumbers, reader_limits

Float = NDArray[np.float64]


def rank_errors(positive: ArrayLike, rating: ArrayLike) -> Float:
    """Compute the share of the cases of the other class that a rating puts on the wrong side of a case.

    It is 1 less the placement of the case (DeLong et al. 1988); its mean over a class is 1 less the AUC. It does not
    depend on the scale of the ratings.

    Args:
        positive: (n,) bool, with both values.
        rating: (n,) float, higher for positive; ties count one half.

    Returns:
        (n,) float64 in [0, 1].
    """
    truth = check_positive(positive)
    found = np.empty(len(truth))
    found[truth], found[~truth] = (1 - one for one in placements(truth, check_score(rating, len(truth))))
    return found


def reader_means(values: ArrayLike, group: ArrayLike) -> ReaderNumbers:
    """Compute the mean over cases of each of J readers.

    Args:
        values: (J, n) finite float.
        group: (n,) int or str, the patient of each case.

    Raises:
        ValueError: a value is not finite or a group missing; shapes do not fit.
    """
    given = np.asarray(values, dtype=np.float64)
    return _numbers([(one.mean(), (one - one.mean()) / len(one), 1) for one in given], group)


def reader_slopes(x: ArrayLike, values: ArrayLike, strata: ArrayLike, group: ArrayLike) -> ReaderNumbers | None:
    """Compute the least-squares slope of each of J readers within strata, such as sessions.

    Args:
        x: (J, n) finite float, such as the place in the session.
        values: (J, n) finite float.
        strata: (J, n) int; each stratum has an intercept of its own.
        group: (n,) int or str, the patient of each case.

    Returns:
        None if x does not vary within the strata of a reader, or a reader has no more cases than parameters.

    Raises:
        ValueError: as ``reader_means``.

    Source: Liang & Zeger (1986), Biometrika 73:13 (residuals summed by cluster), with the factor (n - 1) / (n - p).
    """
    found = []
    given = [np.asarray(one) for one in (x, values, strata)]
    for places, own, stratum in zip(*given, strict=True):
        away, off = (_within(one.astype(np.float64), stratum) for one in (places, own))
        square, parameters = float(away @ away), len(np.unique(stratum)) + 1
        if not square > 1e-12 or len(off) <= parameters:
            return None
        slope = float(away @ off) / square
        found.append((slope, away * (off - slope * away) / square, parameters))
    return _numbers(found, group)


def _within(values: Float, stratum: np.ndarray) -> Float:
    _, code = np.unique(stratum, return_inverse=True)
    return values - (np.bincount(code, values) / np.bincount(code))[code]


def _numbers(found: Sequence[tuple[float, Float, int]], group: ArrayLike) -> ReaderNumbers:
    """Return numbers of readers from the part of each case in their deviation, and the number of parameters."""
    n = len(found[0][1])
    code, n_groups = group_codes(group, n)
    sums = np.stack(
        [
            np.bincount(code, check_score(part, n), n_groups) * np.sqrt((n - 1) / max(n - parameters, 1))
            for _, part, parameters in found
        ]
    )
    covariance = sums @ sums.T * n_groups / (n_groups - 1) if n_groups > 1 else np.full((len(found),) * 2, np.nan)
    return ReaderNumbers(np.array([value for value, _, _ in found]), covariance, n_groups, differences=True)


def change_over_readers(numbers: ReaderNumbers, inference: Inference, *, logarithms: bool = False) -> Estimate:
    """Compute the mean over readers with its 95 % interval, as ``mean_over_readers``, of numbers of any size.

    Args:
        numbers: of each reader.
        inference: what other studies would differ in.
        logarithms: whether the numbers are natural logarithms: mean and interval are transformed back.
    """
    limits, back = reader_limits(numbers, inference), np.exp if logarithms else float
    ends, reason, p = None, None, None
    if isinstance(limits, str):
        reason = limits
    else:
        half = float(student.ppf(1 - ALPHA / 2, limits.freedom)) * limits.error
        ends = float(back(numbers.mean - half)), float(back(numbers.mean + half))
        p = 2 * float(student.sf(abs(numbers.mean) / limits.error, limits.freedom))
    value, method = float(back(numbers.mean)), METHODS[inference]
    return Estimate(value=value, ci95=ends, method=method, n_groups=numbers.n_groups, p=p, reason=reason)
