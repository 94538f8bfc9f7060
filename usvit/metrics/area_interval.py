"""Score interval of an AUC, for AUCs near 1 from few positives, where the interval on the logit scale is too short.

Near 1, the estimated variance is too small exactly when the AUC is overestimated: the few difficult positives that
cause the variance were not sampled. A score interval instead contains every true AUC that is compatible with the data,
and uses the variance at *that* AUC. The variance has the form that Newcombe recommends (method 5). It is multiplied by
the ratio of Obuchowski's variance to it, because scores may vary more, and Student's t accounts for the few groups
that the variance is estimated from. The table ``near-one`` of ``benchmarks.coverage`` measures the coverage.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, stdtrit
from scipy.stats import norm, rankdata

from usvit.metrics.intervals import ALPHA, Interval

METHOD = "clustered (Obuchowski), score"
_FEW_ERRORS = 5.0
"""The logit interval is too short below this number of expected misranked groups of the rarer class,
m * min(AUC, 1 - AUC): the rule of thumb for a normal interval of a proportion, five successes and five failures."""


def few_errors(value: float, fewest_groups: int) -> bool:
    """Return whether an AUC has too few misranked groups for an interval on the logit scale.

    Args:
        value: the AUC in [0, 1].
        fewest_groups: groups with a positive or groups with a negative, whichever number is smaller.
    """
    return fewest_groups * min(value, 1 - value) < _FEW_ERRORS


def score_interval(
    value: float, variance: float, *, n_positive: float, n_negative: float, freedom: float
) -> Interval | None:
    """Compute the 95 % score interval of an AUC that respects patients.

    It contains every AUC a with (value - a)^2 <= t^2 k V(a): V is Newcombe's variance of an AUC of a among so many
    images, k the ratio of the estimated variance to V(value), at least 1, and t the quantile of Student's distribution.

    Args:
        value: the AUC in [0, 1].
        variance: Obuchowski's, or DeLong's; NaN if it cannot be estimated.
        n_positive, n_negative: effective numbers of images of the two classes (``effective_images``).
        freedom: ``degrees_of_freedom`` of the variance.

    Returns:
        (low, high) within (0, 1); None for an AUC of 0 or 1 or a variance of NaN.

    Source: Newcombe (2006), Statistics in Medicine 25:559, method 5 (score interval with the Hanley-McNeil variance of
    equal sample sizes); the stretching by the design effect as in Rao & Scott (1992), Biometrics 48:577.
    """
    if not 0 < value < 1 or np.isnan(variance):
        return None
    stretch = max(1.0, variance / _newcombe(value, n_positive, n_negative))
    wide = float(stdtrit(freedom, 1 - ALPHA / 2)) ** 2 * stretch

    def outside(odds: float) -> float:
        area = float(expit(odds))
        return (value - area) ** 2 - wide * _newcombe(area, n_positive, n_negative)

    middle = float(logit(value))
    return float(expit(brentq(outside, middle - 40, middle))), float(expit(brentq(outside, middle, 36)))


def degrees_of_freedom(positives: np.ndarray, negatives: np.ndarray, up: int, down: int) -> float:
    """Compute Satterthwaite's degrees of freedom of an AUC's variance, at least 1.

    Args:
        positives, negatives: (G,) contribution of each group's images of the class to the AUC
            (``clustered.AreaParts``).
        up, down: numbers of groups with a positive and with a negative; at least 2 each.

    Source: Brunner & Munzel (2000), Biometrical Journal 42:17, with groups in place of cases.
    """
    a, b = up / (up - 1) * float(positives @ positives), down / (down - 1) * float(negatives @ negatives)
    squares = a**2 / (up - 1) + b**2 / (down - 1)
    return max(1.0, (a + b) ** 2 / squares) if squares > 0 else float(min(up, down) - 1)


def _newcombe(area: float, m: float, n: float) -> float:
    """Variance of an AUC of ``area`` from m positives and n negatives, with exponential scores and equal sizes."""
    both = (m + n) / 2
    return area * (1 - area) * (1 + (both - 1) * ((1 - area) / (2 - area) + area / (1 + area))) / (m * n)


def effective_images(positive: np.ndarray, score: np.ndarray, code: np.ndarray) -> tuple[float, float]:
    """Compute the effective numbers of positives and negatives, from the similarity of scores within groups.

    Images m_1 ... m_G of a class count as (sum m)^2 / sum m (1 + (m - 1) r), with r of ``within_group_correlation``.

    Args:
        positive: (n,) bool, with both values.
        score: (n,) float.
        code: (n,) int, the group of each image.

    Source: Kish (1965), Survey Sampling, section 5.4 (the design effect).
    """
    _, cell = np.unique(2 * code + positive, return_inverse=True)
    sizes = np.bincount(cell)
    of_positive = np.bincount(cell, positive) > 0
    r = within_group_correlation(positive, score, code)

    def worth(own: np.ndarray) -> float:
        return float(own.sum() ** 2 / (own * (1 + (own - 1) * r)).sum())

    return worth(sizes[of_positive]), worth(sizes[~of_positive])


def within_group_correlation(positive: np.ndarray, score: np.ndarray, code: np.ndarray) -> float:
    """Compute the correlation of the scores of two images of one group and class, in [0, 1]; 0 if none has two.

    The ranks of the scores are converted to normal scores; the correlation is the intraclass correlation within groups
    and classes of a one-way analysis of variance.

    Args:
        positive, score, code: as ``effective_images``.

    Source: Donner (1986), International Statistical Review 54:67 (the estimator for groups of unequal size).
    """
    n = len(score)
    normal = norm.ppf((rankdata(score) - 0.5) / n)
    _, cell = np.unique(2 * code + positive, return_inverse=True)
    sizes = np.bincount(cell)
    away = normal - np.where(positive, normal[positive].mean(), normal[~positive].mean())
    means = np.bincount(cell, away) / sizes
    between, within = float(sizes @ means**2), float(((away - means[cell]) ** 2).sum())
    if not (n > len(sizes) > 2 and between + within > 0):
        return 0.0
    usual = (n - float(sizes @ sizes) / n) / (len(sizes) - 1)
    mean_between, mean_within = between / (len(sizes) - 2), within / (n - len(sizes))
    return min(1.0, max(0.0, (mean_between - mean_within) / (mean_between + (usual - 1) * mean_within)))
