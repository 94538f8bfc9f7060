"""The public statistics of scores and probabilities: arrays in, an ``Estimate`` out, as in ``of_decisions``."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.calibration_statistics import LOWEST_PROB, N_BINS, calibration_line, log_odds, reliability
from usvit.metrics.checks import check_positive, check_score, groups_or_images
from usvit.metrics.clustered import clustered_auc, clustered_difference
from usvit.metrics.intervals import undefined
from usvit.metrics.of_decisions import figures_of
from usvit.metrics.proportions import check_binary, clustered_share
from usvit.metrics.threshold_choice import outcome, why_no_threshold

_IN_SAMPLE = "the threshold was chosen on these same images, so that the value is better than on new images"


@dataclass(frozen=True)
class Calibration:
    """Agreement of the probabilities of the positive class with its observed frequency.

    Attributes:
        slope: of the logistic recalibration line; 1 is perfect, below 1 is over-confident.
        intercept: of the same line; 0 is perfect.
        in_the_large: intercept with the slope held at 1; above 0, positives are more frequent than predicted.
        ece: expected calibration error in equal-mass bins, in [0, 1]; it has no interval, and chance makes it positive.
        ece_debiased: the same error without the part that chance adds.
        brier: Brier score, in [0, 1]; 0 is perfect.
    """

    slope: Estimate
    intercept: Estimate
    in_the_large: Estimate
    ece: Estimate
    ece_debiased: Estimate
    brier: Estimate


def auc(y_true: ArrayLike, y_score: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Compute the area under the ROC curve.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_score: (n,) finite float, higher for positive; ties count one half.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1]; undefined if a class is absent.

    Raises:
        ValueError: an array has the wrong length, a label is not 0 or 1, a score is not finite or a group is missing.

    Source: Obuchowski (1997), Biometrics 53:567.

    Example:
        >>> found = auc([0, 0, 1, 1], [0.1, 0.6, 0.5, 0.9], groups=["a", "b", "c", "d"])
        >>> found.value, found.n_groups
        (0.75, 4)
    """
    return clustered_auc(y_true, y_score, groups_or_images(groups, y_true))


def auc_difference(
    y_true: ArrayLike, score_a: ArrayLike, score_b: ArrayLike, groups: ArrayLike | None = None
) -> Estimate:
    """Compute the AUC of model A minus the AUC of model B on the same images.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        score_a: (n,) finite float, the scores of model A.
        score_b: (n,) finite float, the scores of model B.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [-1, 1] with a two-sided p-value; undefined if a class is absent.

    Raises:
        ValueError: as ``auc``.

    Source: Obuchowski (1997), Biometrics 53:567.

    Example:
        >>> found = auc_difference([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], [0.1, 0.6, 0.5, 0.9])
        >>> found.value
        0.25
    """
    return clustered_difference(y_true, score_a, score_b, groups_or_images(groups, y_true))


def sensitivity_at(
    y_true: ArrayLike, y_score: ArrayLike, specificity: float, groups: ArrayLike | None = None
) -> Estimate:
    """Compute the sensitivity at the threshold that reaches a target specificity on the same images.

    The value is a point of the ROC curve. The threshold is chosen on the images that it is judged on, so the value is
    too good for new images, and the ``warning`` says so. To judge a threshold fairly, choose it on other images
    (``choose_threshold``) and use ``sensitivity``.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_score: (n,) finite float, higher for positive.
        specificity: the least specificity wanted, in (0, 1].
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1]; undefined if a class is absent. The interval takes the threshold as given.

    Raises:
        ValueError: as ``auc``, or the target lies outside (0, 1].

    Example:
        >>> sensitivity_at([0, 0, 0, 1, 1], [0.1, 0.2, 0.7, 0.6, 0.9], specificity=1.0).value
        0.5
    """
    return _at_target(y_true, y_score, specificity, "specificity", "sensitivity", groups)


def specificity_at(
    y_true: ArrayLike, y_score: ArrayLike, sensitivity: float, groups: ArrayLike | None = None
) -> Estimate:
    """Compute the specificity at the threshold that reaches a target sensitivity on the same images.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_score: (n,) finite float, higher for positive.
        sensitivity: the least sensitivity wanted, in (0, 1].
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        As ``sensitivity_at``.

    Raises:
        ValueError: as ``sensitivity_at``.

    Source: as ``sensitivity_at``.

    Example:
        >>> specificity_at([0, 0, 0, 0, 1, 1], [0.1, 0.2, 0.3, 0.7, 0.6, 0.9], sensitivity=1.0).value
        0.75
    """
    return _at_target(y_true, y_score, sensitivity, "sensitivity", "specificity", groups)


def brier(y_true: ArrayLike, y_prob: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Compute the mean squared error of the probability of the positive class.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_prob: (n,) float in [0, 1], the probability of the positive class.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1]; 0 is perfect.

    Raises:
        ValueError: as ``auc``, or a probability lies outside [0, 1].

    Source: Brier (1950), Monthly Weather Review 78:1; the interval is a bootstrap of groups (Efron 1987).

    Example:
        >>> brier([0, 1], [0.5, 1.0]).value
        0.125
    """
    reference, p, _ = check_binary(y_true, y_prob, groups)
    return figures_of(reference, np.stack([1 - p, p], axis=1), groups).figure("brier_vs_rest", "positive")


def calibration(
    y_true: ArrayLike, y_prob: ArrayLike, groups: ArrayLike | None = None, *, n_bins: int = N_BINS
) -> Calibration:
    """Compute calibration slope, intercept, calibration error and Brier score of probabilities.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_prob: (n,) float in [0, 1], the probability of the positive class; 0 and 1 are read as 2.2e-16 away from it.
        groups: (n,) int or str, the patient of each image; None if all images are independent.
        n_bins: equal-mass bins of the calibration error, at least 1.

    Returns:
        Slope and intercept are undefined if a class is absent or a threshold separates the classes perfectly.

    Raises:
        ValueError: as ``brier``, or ``n_bins`` is below 1.

    Source: Cox (1958), Biometrika 45:562; Van Calster et al. (2019), BMC Medicine 17:230; Kumar, Liang & Ma (2019),
    NeurIPS (debiased calibration error).

    Example:
        >>> found = calibration([0, 1, 0, 1], [0.2, 0.4, 0.6, 0.8], n_bins=2)
        >>> round(found.ece.value, 3), round(found.brier.value, 3)
        (0.2, 0.2)
    """
    reference, p, _ = check_binary(y_true, y_prob, groups)
    both = np.stack([1 - p, p], axis=1)
    line = calibration_line(reference, log_odds(np.log(np.maximum(both, LOWEST_PROB)), 1), groups)
    error = reliability(reference, p, groups, n_bins=n_bins)
    return Calibration(
        slope=line.slope,
        intercept=line.intercept,
        in_the_large=line.in_the_large,
        ece=error.ece,
        ece_debiased=error.ece_debiased,
        brier=brier(reference, p, groups),
    )


def _at_target(
    y_true: ArrayLike, y_score: ArrayLike, target: float, of: str, name: str, groups: ArrayLike | None
) -> Estimate:
    """Read the figure ``name`` from the ROC curve where the figure ``of`` reaches its target."""
    reference = check_positive(y_true)
    score = check_score(y_score, len(reference))
    if not 0 < target <= 1:
        raise ValueError(f"a target {of} must be above 0 and at most 1, not {target}")
    group = np.asarray(groups_or_images(groups, reference))
    if reason := why_no_threshold(reference):
        return undefined(reason, len(np.unique(group)))
    own = np.sort(score[reference] if of == "sensitivity" else -score[~reference])[::-1]
    limit = own[math.ceil(target * len(own) - 1e-9) - 1]
    called = score >= limit if of == "sensitivity" else score > -limit
    found: Estimate = getattr(outcome(reference, called, group, interval=clustered_share), name)
    return found.with_warning(_IN_SAMPLE)
