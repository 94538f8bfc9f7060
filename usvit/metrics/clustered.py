"""Obuchowski's variance of the AUC, for images that belong to patients.

Images of one patient are not independent, so DeLong's variance, which counts images, is wrong: it is too small if
patients have several images of one label, and too large if each patient has one image of each label. Obuchowski's
variance sums the contributions of each patient. With one image per patient it equals DeLong's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.area_interval import METHOD as SCORE_METHOD
from usvit.metrics.area_interval import degrees_of_freedom, effective_images, few_errors, score_interval
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.delong import ABSENT, NO_VARIANCE, area_value, difference_value, placements
from usvit.metrics.intervals import undefined, with_interval
from usvit.metrics.support import rarest

METHOD = "clustered (Obuchowski), logit"
_DIFFERENCE_METHOD = "clustered (Obuchowski), paired"


@dataclass(frozen=True)
class AreaParts:
    """An AUC and the contribution of each of G groups to it.

    Attributes:
        value: the AUC in [0, 1].
        positives: (G,) sum of the group's positives' placements less the AUC, over all positives; sums to 0.
        negatives: (G,) the same for its negatives.
        has_positive: (G,) bool, whether the group has a positive.
        has_negative: (G,) bool.
    """

    value: float
    positives: np.ndarray
    negatives: np.ndarray
    has_positive: np.ndarray
    has_negative: np.ndarray

    @property
    def n_groups(self) -> int:
        return int((self.has_positive | self.has_negative).sum())

    @property
    def fewest_groups(self) -> int:
        """The smaller of the numbers of groups with a positive and with a negative."""
        return int(min(self.has_positive.sum(), self.has_negative.sum()))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance; each class needs two groups."""
        up, down = int(self.has_positive.sum()), int(self.has_negative.sum())
        return degrees_of_freedom(self.positives, self.negatives, up, down)

    @property
    def disjoint_pairs(self) -> int:
        """Maximum number of pairs of a positive and a negative in which no group occurs twice."""
        return int(min(self.has_positive.sum(), self.has_negative.sum(), self.n_groups // 2))


def area_parts(positive: np.ndarray, score: np.ndarray, code: np.ndarray, n_groups: int) -> AreaParts | None:
    """Split an AUC by group.

    Args:
        positive: (n,) bool.
        score: (n,) finite float64.
        code: (n,) int in 0 ... n_groups - 1, not all of which must occur.
        n_groups: G.

    Returns:
        None if there is no positive or no negative.
    """
    m = int(positive.sum())
    if m in (0, len(positive)):
        return None
    v10, v01 = placements(positive, score)
    value = float(v10.mean())
    up, down = code[positive], code[~positive]
    return AreaParts(
        value,
        np.bincount(up, v10 - value, n_groups) / m,
        np.bincount(down, v01 - value, n_groups) / (len(positive) - m),
        np.bincount(up, minlength=n_groups) > 0,
        np.bincount(down, minlength=n_groups) > 0,
    )


def area_covariance(a: AreaParts, b: AreaParts) -> float:
    """Compute the covariance of two models' AUCs on the same rows; of an AUC with itself, its variance.

    Args:
        a, b: parts of the same labels and groups, of two scores.

    Returns:
        NaN if fewer than two groups have a positive, or fewer than two have a negative.

    Source: Obuchowski (1997), Biometrics 53:567: S10/M + S01/N + (S11 + S11')/(MN), with each S
    corrected by I/(I - 1) for the I groups that it sums.
    """
    up, down, both = int(a.has_positive.sum()), int(a.has_negative.sum()), a.n_groups
    if min(up, down) < 2:
        return float("nan")
    return float(
        up / (up - 1) * (a.positives @ b.positives)
        + down / (down - 1) * (a.negatives @ b.negatives)
        + both / (both - 1) * (a.positives @ b.negatives + a.negatives @ b.positives)
    )


def clustered_auc(positive: ArrayLike, score: ArrayLike, group: ArrayLike) -> Estimate:
    """Compute the area under the ROC curve with an interval that respects patients.

    Args:
        positive: (n,) bool.
        score: (n,) float, higher for positive; any monotone score; ties count one half.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.

    Returns:
        An Estimate in [0, 1] with a 95 % interval: on the logit scale, or, near 0 and 1 with few groups of a class, the
        score interval of ``area_interval``. It is null with a reason if a class is absent. It has no interval, but a
        reason, if fewer than two groups have a positive (or a negative) or if the variance is 0. An AUC of 0 or 1 has
        the exact bound of ``delong.area_value``. It has a warning if the rarer class has fewer than 50 effective
        groups.

    Raises:
        ValueError: a score is not finite or a group missing (the index is named); shapes do not fit.

    Source: Obuchowski (1997), Biometrics 53:567.
    """
    truth = check_positive(positive)
    values = check_score(score, len(truth))
    code, n_groups = group_codes(group, len(truth))
    parts = area_parts(truth, values, code, n_groups)
    if parts is None:
        return undefined(ABSENT, n_groups)
    variance = area_covariance(parts, parts)
    support = rarest(truth.astype(np.int64), code, {1: "positive images", 0: "negative images"})
    if few_errors(parts.value, parts.fewest_groups) and variance > NO_VARIANCE:
        m, n = effective_images(truth, values, code)
        ci95 = score_interval(parts.value, variance, n_positive=m, n_negative=n, freedom=parts.freedom)
        return with_interval(parts.value, ci95, method=SCORE_METHOD, n_groups=n_groups, support=support)
    return area_value(
        parts.value,
        variance,
        disjoint_pairs=parts.disjoint_pairs,
        n_groups=n_groups,
        method=METHOD,
        support=support,
    )


def clustered_difference(positive: ArrayLike, score_a: ArrayLike, score_b: ArrayLike, group: ArrayLike) -> Estimate:
    """Compute the AUC of model A minus that of model B on the same images, respecting patients.

    Args:
        positive: (n,) bool.
        score_a, score_b: (n,) float, the two models' scores of the same rows.
        group: (n,) int or str.

    Returns:
        An Estimate in [-1, 1] with "p" (two-sided, normal), as ``delong.difference_value`` describes;
        null with a reason if a class is absent.

    Raises:
        ValueError: as in ``clustered_auc``.

    Source: Obuchowski (1997), Biometrics 53:567, the covariance of two areas on the same clusters.
    """
    truth = check_positive(positive)
    scores = [check_score(score, len(truth)) for score in (score_a, score_b)]
    code, n_groups = group_codes(group, len(truth))
    a, b = (area_parts(truth, score, code, n_groups) for score in scores)
    if a is None or b is None:
        return undefined(ABSENT, n_groups)
    variance = area_covariance(a, a) + area_covariance(b, b) - 2 * area_covariance(a, b)
    support = rarest(truth.astype(np.int64), code, {1: "positive images", 0: "negative images"})
    return difference_value(a.value - b.value, variance, n_groups=n_groups, method=_DIFFERENCE_METHOD, support=support)
