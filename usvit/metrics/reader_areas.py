"""The mean AUC of several readers of the same images, and a model's AUC less this mean, both clustered by patient.

The readers are taken as given: the variance counts patients, not readers. It answers for these readers on new patients,
and not for other readers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.area_interval import METHOD as SCORE_METHOD
from usvit.metrics.area_interval import effective_images, few_errors, score_interval
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.clustered import METHOD, AreaParts, area_covariance, area_parts, clustered_auc
from usvit.metrics.cross_validation import FoldFigure, Stratum
from usvit.metrics.delong import ABSENT, NO_VARIANCE, area_value, difference_value
from usvit.metrics.intervals import undefined, with_interval
from usvit.metrics.support import rarest

_CLASSES = {1: "positive images", 0: "negative images"}


def mean_auc(positive: ArrayLike, scores: Sequence[ArrayLike], group: ArrayLike) -> Estimate:
    """Compute the mean of the AUCs of R >= 1 readers, with a 95 % interval that respects patients.

    Args:
        positive: (n,) bool.
        scores: R times (n,) float, such as ordinal categories; ties count one half.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.

    Returns:
        As ``clustered_auc``, which it equals for one reader.

    Raises:
        ValueError: as ``clustered_auc``.

    Source: Obuchowski (1997), Biometrics 53:567; the covariance of a mean is the mean of the covariances, so that the
    contributions of each patient are averaged over readers.
    """
    if len(scores) == 1:
        return clustered_auc(positive, scores[0], group)
    truth = check_positive(positive)
    values = [check_score(one, len(truth)) for one in scores]
    code, n_groups = group_codes(group, len(truth))
    parts = _mean_parts(truth, values, code, n_groups)
    if parts is None:
        return undefined(ABSENT, n_groups)
    variance = area_covariance(parts, parts)
    support = rarest(truth.astype(np.int64), code, _CLASSES)
    if few_errors(parts.value, parts.fewest_groups) and variance > NO_VARIANCE:
        m, n = np.mean([effective_images(truth, one, code) for one in values], axis=0)
        ends = score_interval(parts.value, variance, n_positive=m, n_negative=n, freedom=parts.freedom)
        return with_interval(parts.value, ends, method=SCORE_METHOD, n_groups=n_groups, support=support)
    return area_value(
        parts.value, variance, disjoint_pairs=parts.disjoint_pairs, n_groups=n_groups, method=METHOD, support=support
    )


def difference_to_mean(
    positive: ArrayLike, score: ArrayLike, scores: Sequence[ArrayLike], group: ArrayLike
) -> Estimate:
    """Compute a model's AUC minus the mean AUC of R >= 1 readers on the same images, respecting patients.

    Args:
        positive: (n,) bool.
        score: (n,) float, of the model.
        scores, group: as ``mean_auc``.

    Returns:
        As ``clustered_difference``, which it equals for one reader.

    Raises:
        ValueError: as ``clustered_auc``.
    """
    truth = check_positive(positive)
    code, n_groups = group_codes(group, len(truth))
    model = area_parts(truth, check_score(score, len(truth)), code, n_groups)
    mean = _mean_parts(truth, [check_score(one, len(truth)) for one in scores], code, n_groups)
    if model is None or mean is None:
        return undefined(ABSENT, n_groups)
    variance = area_covariance(model, model) + area_covariance(mean, mean) - 2 * area_covariance(model, mean)
    support = rarest(truth.astype(np.int64), code, _CLASSES)
    method = "clustered (Obuchowski), paired"
    return difference_value(model.value - mean.value, variance, n_groups=n_groups, method=method, support=support)


def mean_of_fold(figures: Sequence[FoldFigure | None]) -> FoldFigure | None:
    """Average the AUCs of several readers of the images of one fold; None if one is undefined.

    The readers have read the same images, so the contributions of a patient are averaged within its strata.
    """
    known = [one for one in figures if one is not None]
    if len(known) < len(figures):
        return None
    strata = {
        name: Stratum(np.mean([one.strata[name].adds for one in known], axis=0), stratum.images)
        for name, stratum in known[0].strata.items()
    }
    return FoldFigure(float(np.mean([one.value for one in known])), strata, known[0].independent)


def _mean_parts(truth: np.ndarray, scores: Sequence[np.ndarray], code: np.ndarray, n_groups: int) -> AreaParts | None:
    """Average the AUCs and the contributions of the groups; the images are the same for all readers."""
    every = [area_parts(truth, one, code, n_groups) for one in scores]
    parts = [one for one in every if one is not None]
    if not parts:
        return None
    return AreaParts(
        float(np.mean([one.value for one in parts])),
        np.mean([one.positives for one in parts], axis=0),
        np.mean([one.negatives for one in parts], axis=0),
        parts[0].has_positive,
        parts[0].has_negative,
    )
