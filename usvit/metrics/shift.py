"""Change of a figure between two sets of patients, and between two networks on the same patients.

A figure of several networks is the mean of the figures of the single networks, never a figure of their mean score, so
that an ensemble is not compared with single networks. All intervals are of new patients for these networks; only the
interval of ``paired_change`` includes chance in training.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.cross_validation import FoldMean, fold_mean, mean_value
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.fold_figures import FoldFigure, area_figure
from usvit.metrics.intervals import ALPHA, undefined, with_interval
from usvit.metrics.support import support_of
from usvit.metrics.training_share import WHOLE_SHARE

ABSENT = "no positive or no negative image"
_CHANGE_METHOD = "difference of independent estimates (MOVER)"
_RATIO_METHOD = "ratio of sums over groups, log t"


def mean_area_of_networks(positive: np.ndarray, scores: np.ndarray, group: np.ndarray) -> Estimate:
    """Compute the mean AUC of M networks on the same images, with an interval that respects patients.

    Args:
        positive: (n,) bool.
        scores: (M, n) float, M >= 1.
        group: (n,) int or str, the patient of each image.
    """
    if len(scores) == 1:
        return clustered_auc(positive, scores[0], group)
    code, n_groups = group_codes(group, len(positive))
    mean = fold_mean([[area_figure(positive, one, code, n_groups)] for one in scores])
    value = _given_networks(mean, n_groups)
    return value if value.value is None else value.replace(method="mean of networks, clustered, logit t")


def mean_area_of_folds(positive: np.ndarray, score: np.ndarray, group: np.ndarray, fold: np.ndarray) -> Estimate:
    """Compute the mean AUC over folds, each of the network that did not see the fold.

    Args:
        positive: (n,) bool.
        score: (n,) float.
        group: (n,) int or str.
        fold: (n,) int.
    """
    numbers = np.unique(fold)
    if len(numbers) == 1:
        return clustered_auc(positive, score, group)
    code, n_groups = group_codes(group, len(positive))
    figures = [area_figure(positive[fold == k], score[fold == k], code[fold == k], n_groups) for k in numbers]
    return _given_networks(fold_mean([figures]), n_groups)


def independent_change(after: Estimate, before: Estimate) -> Estimate:
    """Compute a figure on one set of patients minus the same figure on other patients.

    Args:
        after, before: estimates from disjoint sets of patients, each with its 95 % interval.

    Returns:
        An Estimate without p. It has no interval, with the reason, if one of the two has none.

    Source: Zou & Donner (2008), Statistics in Medicine 27:1693, eq. 7 (MOVER); for proportions Newcombe (1998),
    Statistics in Medicine 17:873, method 10.
    """
    groups = (after.n_groups or 0) + (before.n_groups or 0)
    if after.value is None or before.value is None:
        return undefined((after if after.value is None else before).reason or "", groups)
    difference = after.value - before.value
    if after.ci95 is None or before.ci95 is None:
        why = "one of the two figures has no interval"
        return with_interval(difference, None, method=_CHANGE_METHOD, n_groups=groups, reason=why)
    low = math.hypot(after.value - after.ci95[0], before.ci95[1] - before.value)
    high = math.hypot(after.ci95[1] - after.value, before.value - before.ci95[0])
    found = with_interval(difference, (difference - low, difference + high), method=_CHANGE_METHOD, n_groups=groups)
    warning = after.warning or before.warning
    return found.replace(warning=warning) if warning else found


def paired_change(
    a: Sequence[Sequence[FoldFigure | None]], b: Sequence[Sequence[FoldFigure | None]], n_groups: int
) -> Estimate:
    """Compute the mean difference of the AUCs of two networks on the same images, A minus B, over folds.

    The interval includes chance in training at its upper bound (``WHOLE_SHARE``), because two networks are compared.

    Args:
        a, b: for each training without the set's rival, the AUCs of the folds of either network; None if undefined.
        n_groups: number of groups.
    """
    return difference_within_folds(a, b, WHOLE_SHARE, absent=ABSENT, n_groups=n_groups)


def observed_to_expected(positive: np.ndarray, prob: np.ndarray, group: np.ndarray) -> Estimate:
    """Compute the number of positive images divided by the number that the probabilities predict.

    Args:
        positive: (n,) bool.
        prob: (n,) float in [0, 1], of the positive class.
        group: (n,) int or str.

    Returns:
        An Estimate above 0 with an interval on the logarithmic scale from the variance of the sums over groups; 1 is
        perfect, and above 1 positives are more frequent than predicted.

    Source: Debray et al. (2017), BMJ 356:i6460, on the logarithm of O:E; the variance between groups as that of a ratio
    estimate (Cochran 1977, Sampling Techniques, section 6.4).
    """
    reference = check_positive(positive)
    p = check_score(prob, len(reference))
    code, n_groups = group_codes(group, len(reference))
    observed, expected = float(reference.sum()), float(p.sum())
    if not observed or not expected:
        return undefined("no positive image" if not observed else "all probabilities are 0", n_groups)
    value = observed / expected
    if n_groups < 2:
        return with_interval(value, None, method=_RATIO_METHOD, n_groups=n_groups, reason="there is only one group")
    away = np.bincount(code, reference / observed - p / expected)
    error = math.sqrt(n_groups / (n_groups - 1) * float(away @ away))
    if error < 1e-12:
        why = "all groups have the same ratio, so the variance is 0"
        return with_interval(value, None, method=_RATIO_METHOD, n_groups=n_groups, reason=why)
    half = float(student.ppf(1 - ALPHA / 2, n_groups - 1)) * error
    ci95 = (value * math.exp(-half), value * math.exp(half))
    return with_interval(value, ci95, method=_RATIO_METHOD, n_groups=n_groups, support=support_of(code))


def _given_networks(mean: FoldMean | None, n_groups: int) -> Estimate:
    """Return the Estimate of a mean whose networks are taken as given: their differences are not sampling error."""
    if mean is not None:
        mean = dataclasses.replace(mean, by_repeat=np.array([mean.value]))
    return mean_value(mean, 0.0, absent=ABSENT, n_groups=n_groups)
