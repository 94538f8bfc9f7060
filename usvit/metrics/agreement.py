"""Agreement of readers who rate the same images, with intervals that count patients.

Each figure is a function of sums over patients, so that the jackknife over patients costs one pass.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.checks import check_score, group_codes
from usvit.metrics.intervals import ALPHA, undefined, with_interval

METHOD = "jackknife over groups, Fisher's z"
_NO_SPREAD = "all ratings are equal"
_ONE_SIDE = "all readers call all images alike, so that no agreement by chance can be removed"
_EXTREME = "the agreement is -1 or 1, with or without a patient, or the same without any patient"
_FEW = "at least three patients are needed"
Float = NDArray[np.float64]


def weighted_kappa(ratings: Sequence[ArrayLike], group: ArrayLike) -> Estimate:
    """Compute the quadratically weighted kappa of two readers, averaged over all pairs of J >= 2 readers.

    Args:
        ratings: J times (n,) finite ratings on one scale, such as categories 1 to 5 or scores from 0 to 100.
        group: (n,) int or str, the patient of each image.

    Returns:
        In [-1, 1] with a 95 % interval for these readers; null with a reason if a pair of readers gives all images one
        rating.

    Raises:
        ValueError: fewer than two readers; a rating is not finite or a group missing (the index is named).

    Source: Cohen (1968), Psychological Bulletin 70:213; with quadratic weights and numbers as categories, it is the
    concordance correlation of Lin (1989), Biometrics 45:255.
    """
    values = _checked(ratings)
    values = (values - values.mean()) / (values.std() or 1.0)  # the figure stays the same, and its sums are accurate
    pairs = list(combinations(range(len(values)), 2))
    products = np.stack([values[a] * values[b] for a, b in pairs])
    sums = np.concatenate([values, values**2, products])
    j = len(values)

    def kappa(mean: Float) -> Float:
        first, second, both = mean[..., :j], mean[..., j : 2 * j], mean[..., 2 * j :]
        found = []
        for number, (a, b) in enumerate(pairs):
            covariance = both[..., number] - first[..., a] * first[..., b]
            apart = second[..., a] + second[..., b] - 2 * first[..., a] * first[..., b]
            found.append(_ratio(2 * covariance, apart))
        return np.asarray(np.mean(found, axis=0))

    return _jackknife(sums, kappa, group, _NO_SPREAD)


def fleiss_kappa(called: Sequence[ArrayLike], group: ArrayLike) -> Estimate:
    """Compute Fleiss' kappa of the decisions of J >= 2 readers.

    Args:
        called: J times (n,) bool.
        group: as ``weighted_kappa``.

    Returns:
        As ``weighted_kappa``; null with a reason if all readers call all images alike.

    Source: Fleiss (1971), Psychological Bulletin 76:378.
    """
    return _chance_corrected(called, group, lambda p: p**2 + (1 - p) ** 2)


def gwet_ac1(called: Sequence[ArrayLike], group: ArrayLike) -> Estimate:
    """Compute Gwet's AC1 of the decisions of J >= 2 readers, which a rare class lowers less than kappa.

    Args and returns as ``fleiss_kappa``.

    Source: Gwet (2008), British Journal of Mathematical and Statistical Psychology 61:29.
    """
    return _chance_corrected(called, group, lambda p: 2 * p * (1 - p))


def _chance_corrected(called: Sequence[ArrayLike], group: ArrayLike, by_chance: Callable[[Float], Float]) -> Estimate:
    """Return the agreement of pairs of readers beyond that ``by_chance``, a function of the share of positive calls."""
    values = _checked([np.asarray(one, dtype=bool).astype(np.float64) for one in called])
    j, positive = len(values), values.sum(axis=0)
    agree = (positive * (positive - 1) + (j - positive) * (j - positive - 1)) / (j * (j - 1))

    def corrected(mean: Float) -> Float:
        chance = by_chance(mean[..., 1])
        return _ratio(mean[..., 0] - chance, 1 - chance)

    return _jackknife(np.stack([agree, positive / j]), corrected, group, _ONE_SIDE)


def _jackknife(rows: Float, figure: Callable[[Float], Float], group: ArrayLike, undefined_because: str) -> Estimate:
    """Return a function of the means of (F, n) rows, with the interval of a jackknife over groups."""
    code, n_groups = group_codes(group, rows.shape[1])
    sums = np.stack([np.bincount(code, one, n_groups) for one in rows], axis=1)
    counts = np.bincount(code, minlength=n_groups)
    value = float(figure(sums.sum(axis=0) / counts.sum()))
    if np.isnan(value):
        return undefined(undefined_because, n_groups)
    if n_groups < 3:
        return with_interval(value, None, method=METHOD, n_groups=n_groups, reason=_FEW)
    left_out = figure((sums.sum(axis=0) - sums) / (counts.sum() - counts)[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        z, others = np.arctanh(value), np.arctanh(left_out)
        variance = (n_groups - 1) / n_groups * ((others - others.mean()) ** 2).sum()
    if not np.isfinite(variance) or not variance > 0:
        return with_interval(value, None, method=METHOD, n_groups=n_groups, reason=_EXTREME)
    half = float(student.ppf(1 - ALPHA / 2, n_groups - 1) * np.sqrt(variance))
    return with_interval(value, (float(np.tanh(z - half)), float(np.tanh(z + half))), method=METHOD, n_groups=n_groups)


def _checked(ratings: Sequence[ArrayLike]) -> Float:
    if len(ratings) < 2:
        raise ValueError("agreement needs at least two readers")
    n = len(np.asarray(ratings[0]))
    return np.stack([check_score(one, n) for one in ratings])


def _ratio(part: Float, whole: Float) -> Float:
    """Divide; NaN where the whole is 0 up to rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(np.abs(whole) > 1e-12, np.clip(part / whole, -1, 1), np.nan))
