"""Agreement of readers who rate the same images, with intervals that count patients.

Each figure is a function of sums over patients, so that the jackknife over patients costs one pass.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import f as f_distribution
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.checks import check_score, group_codes
from usvit.metrics.intervals import ALPHA, undefined, with_interval
from usvit.metrics.support import Support, effective_groups

METHOD = "jackknife over groups, Fisher's z"
_NO_SPREAD = "all ratings are equal"
_ONE_SIDE = "all readers call all images alike, so that no agreement by chance can be removed"
_EXTREME = "the agreement is -1 or 1, with or without a patient, or the same without any patient"
_FEW = "at least three patients are needed"
_ALIKE = "the readers differ by constants only"
_FEWEST_REPEATS = 3
_FEW_REPEATS = "a reader has read fewer than three cases again"
ICC_METHOD = "F distribution (McGraw and Wong), on the effective number of groups"
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
    pairs = list(combinations(_checked(ratings), 2))
    return _mean_kappa(np.stack([a for a, _ in pairs]), np.stack([b for _, b in pairs]), group)


def repeat_kappa(first: Sequence[ArrayLike], again: Sequence[ArrayLike], group: ArrayLike) -> Estimate:
    """Compute the quadratically weighted kappa of first and second readings, averaged over J >= 1 readers.

    Args:
        first, again: J times (n,) ratings; NaN in ``again`` where a reader has not read the case again.
        group: (n,) int or str, the patient of each case.

    Returns:
        As ``weighted_kappa``; null with a reason if a reader has read fewer than three cases again.
    """
    one, other = np.stack([np.asarray(x, float) for x in first]), np.stack([np.asarray(x, float) for x in again])
    has = np.isfinite(other).any(axis=0)
    own = np.asarray(group)[has]
    if np.isfinite(other).sum(axis=1).min() < _FEWEST_REPEATS:
        return undefined(_FEW_REPEATS, len(set(own.tolist())))
    return _mean_kappa(one[:, has], other[:, has], own)


def _mean_kappa(first: Float, second: Float, group: ArrayLike) -> Estimate:
    """Return the mean kappa of P pairs of (P, n) ratings; one that is NaN does not count in its pair."""
    there = np.isfinite(first) & np.isfinite(second)
    given = np.concatenate([first[there], second[there]])
    # the figure stays the same, and its sums are accurate
    a, b = (np.where(there, (one - given.mean()) / (given.std() or 1.0), 0.0) for one in (first, second))
    rows = np.concatenate([there.astype(np.float64), a, b, a**2, b**2, a * b])

    def kappa(mean: Float) -> Float:
        count, *sums = np.split(mean, 6, axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b, aa, bb, ab = (one / count for one in sums)
        return np.asarray(_ratio(2 * (ab - a * b), aa + bb - 2 * a * b).mean(axis=-1))

    return _jackknife(rows, kappa, group, _NO_SPREAD)


def rater_icc(ratings: Sequence[ArrayLike], group: ArrayLike) -> Estimate:
    """Compute ICC(2,1) of J >= 2 readers: the absolute agreement of single ratings, two-way random effects.

    Args:
        ratings: as ``weighted_kappa``.
        group: (n,) int or str, the patient of each case.

    Returns:
        In [-1, 1] with a 95 % interval for other readers and other patients, which supposes normal ratings. With
        several cases of a patient, the effective number of patients stands for that of the cases in the degrees of
        freedom, so that the interval is too long rather than too short. Null with a reason if all ratings are equal.

    Raises:
        ValueError: as ``weighted_kappa``.

    Source: Shrout & Fleiss (1979), Psychological Bulletin 86:420; McGraw & Wong (1996), Psychological Methods 1:30,
    ICC(A,1) and its interval (table 7).
    """
    values = _checked(ratings)
    (k, n), (code, n_groups) = values.shape, group_codes(group, values.shape[1])
    values = values - values.mean()
    cases, readers, total = k * (values.mean(axis=0) ** 2).sum(), n * (values.mean(axis=1) ** 2).sum(), values**2
    rest = max(total.sum() - cases - readers, 0.0) / max((n - 1) * (k - 1), 1)
    cases, readers = cases / max(n - 1, 1), readers / (k - 1)
    spread = cases + (k - 1) * rest + k * (readers - rest) / n
    if not spread > 1e-12 * max(float(total.max()), 1e-300):
        return undefined(_NO_SPREAD, n_groups)
    icc = float((cases - rest) / spread)
    support = Support(n_groups, effective_groups(np.bincount(code)))
    between = support.effective - 1
    if n_groups < 3 or not rest > 1e-12 * spread:
        reason = _FEW if n_groups < 3 else _ALIKE
        return with_interval(icc, None, method=ICC_METHOD, n_groups=n_groups, reason=reason)
    a = k * max(icc, 0.0) / (n * (1 - icc))
    b = 1 + (n - 1) * a
    parts = (a * readers) ** 2 / (k - 1) + (b * rest) ** 2 / (between * (k - 1))
    freedom = (a * readers + b * rest) ** 2 / parts
    other = k * readers + (k * n - k - n) * rest
    low = float(f_distribution.ppf(1 - ALPHA / 2, between, freedom))
    high = float(f_distribution.ppf(1 - ALPHA / 2, freedom, between))
    ends = n * (cases - low * rest) / (low * other + n * cases), n * (high * cases - rest) / (other + n * high * cases)
    return with_interval(icc, ends, method=ICC_METHOD, n_groups=n_groups, support=support)


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
