"""The public statistics: arrays in, an ``Estimate`` out.

Each function returns the same number as metrics.json holds for the same images, with its 95 % confidence interval.
``groups`` names the patient (or near-duplicate cluster) of each image. Images of one group are not independent, so
intervals count groups; without ``groups`` every image is taken as independent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from usvit.metrics.bootstrap import figure_values
from usvit.metrics.calibration_statistics import LOWEST_PROB, N_BINS, calibration_line, log_odds, reliability
from usvit.metrics.checks import check_positive
from usvit.metrics.clustered import clustered_auc, clustered_difference
from usvit.metrics.paired_tests import paired_difference
from usvit.metrics.prevalence import predictive_values as values_at_prevalence
from usvit.metrics.proportions import check_binary, clustered_share
from usvit.metrics.threshold_choice import Rule, choose_threshold, outcome

IN_SAMPLE = "the threshold was chosen on these same images, so that the value is better than on new images"


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval.

    Attributes:
        value: the number; None if it is undefined, and then ``reason`` says why.
        ci95: (low, high), two-sided; None if there is no interval, and then ``reason`` says why.
        method: how the interval was computed; empty if the value is undefined.
        n_groups: groups (patients) that the number rests on.
        reason: why the value or the interval is missing, or why another method was used.
        warning: why the interval must be read with care, such as too few groups.
        p: two-sided p-value, of a difference only.
    """

    value: float | None
    ci95: tuple[float, float] | None
    method: str
    n_groups: int
    reason: str | None = None
    warning: str | None = None
    p: float | None = None


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


@dataclass(frozen=True)
class PredictiveValues:
    """Positive and negative predictive value, each in [0, 1]."""

    ppv: Estimate
    npv: Estimate


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
    return _estimate(clustered_auc(y_true, y_score, _groups(groups, y_true)))


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
    return _estimate(clustered_difference(y_true, score_a, score_b, _groups(groups, y_true)))


def sensitivity(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Compute the share of positive images that are called positive.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_pred: (n,) bool or 0/1, the decisions.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1]; undefined if there is no positive image.

    Raises:
        ValueError: an array has the wrong length, a label or decision is not 0 or 1, or a group is missing.

    Source: intervals as in ``bootstrap.figure_values`` (Wilson 1927; Efron 1987).

    Example:
        >>> found = sensitivity([1, 1, 1, 1, 0], [1, 1, 1, 0, 0])
        >>> found.value, found.method
        (0.75, 'wilson')
    """
    return _estimate(_of_decisions(y_true, y_pred, groups)["sensitivity"]["positive"])


def specificity(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Compute the share of negative images that are called negative.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_pred: (n,) bool or 0/1, the decisions.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1]; undefined if there is no negative image.

    Raises:
        ValueError: as ``sensitivity``.

    Source: as ``sensitivity``.

    Example:
        >>> specificity([0, 0, 1], [0, 1, 1]).value
        0.5
    """
    return _estimate(_of_decisions(y_true, y_pred, groups)["specificity"]["positive"])


def accuracy(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Compute the share of images whose class is decided rightly.

    Args:
        y_true: (n,) int or str, the reference class; any number of classes, n >= 1.
        y_pred: (n,) int or str, the decided class.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: the lengths differ, an array is empty or a group is missing.

    Source: as ``sensitivity``.

    Example:
        >>> accuracy(["benign", "normal", "benign"], ["benign", "normal", "normal"]).value
        0.6666666666666666
    """
    return _estimate(_of_classes(y_true, y_pred, groups)["accuracy"])


def balanced_accuracy(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Compute the mean over classes of the share of their images that are decided rightly.

    Args:
        y_true: (n,) int or str, the reference class; any number of classes, n >= 1.
        y_pred: (n,) int or str, the decided class.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1]; undefined if a class of ``y_pred`` does not occur in ``y_true``.

    Raises:
        ValueError: as ``accuracy``.

    Source: as ``sensitivity``.

    Example:
        >>> balanced_accuracy([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]).value
        0.625
    """
    return _estimate(_of_classes(y_true, y_pred, groups)["balanced_accuracy"])


def sensitivity_at(
    y_true: ArrayLike, y_score: ArrayLike, specificity: float, groups: ArrayLike | None = None
) -> Estimate:
    """Compute the sensitivity at the threshold that reaches a target specificity on the same images.

    The threshold is chosen on the images that it is judged on, so the value is too good for new images, and the
    ``warning`` says so. To judge a threshold fairly, choose it on other images and use ``sensitivity``.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_score: (n,) finite float, higher for positive.
        specificity: the least specificity wanted, in (0, 1].
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        A value in [0, 1]; undefined if no threshold reaches the target. The interval takes the threshold as given.

    Raises:
        ValueError: as ``auc``, or the target lies outside (0, 1].

    Source: Robin et al. (2011), BMC Bioinformatics 12:77 (thresholds half-way between scores).

    Example:
        >>> sensitivity_at([0, 0, 0, 1, 1], [0.1, 0.2, 0.7, 0.6, 0.9], specificity=1.0).value
        0.5
    """
    return _at_target(y_true, y_score, Rule("specificity", specificity), "sensitivity", groups)


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
    return _at_target(y_true, y_score, Rule("sensitivity", sensitivity), "specificity", groups)


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
    return _estimate(_figures(reference, np.stack([1 - p, p], axis=1), groups)["brier_vs_rest"]["positive"])


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
        slope=_estimate(line.slope),
        intercept=_estimate(line.intercept),
        in_the_large=_estimate(line.in_the_large),
        ece=_estimate(error.ece),
        ece_debiased=_estimate(error.ece_debiased),
        brier=brier(reference, p, groups),
    )


def predictive_values(
    y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None = None, *, prevalence: float | None = None
) -> PredictiveValues:
    """Compute the positive and the negative predictive value of decisions.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_pred: (n,) bool or 0/1, the decisions.
        groups: (n,) int or str, the patient of each image; None if all images are independent.
        prevalence: share of positives in (0, 1) that the values hold for, if sensitivity and specificity are the same
            there; None for the share among these images.

    Returns:
        Values in [0, 1]; undefined if no image is called positive (PPV) or negative (NPV).

    Raises:
        ValueError: as ``sensitivity``.
        UsvitError: the prevalence lies outside (0, 1).

    Source: Mercaldo, Lau & Zhou (2007), Statistics in Medicine 26:2170.

    Example:
        >>> found = predictive_values([1, 1, 0, 0], [1, 0, 0, 1], prevalence=0.1)
        >>> round(found.ppv.value, 3), round(found.npv.value, 3)
        (0.1, 0.9)
    """
    if prevalence is None:
        found = _of_decisions(y_true, y_pred, groups)
        return PredictiveValues(_estimate(found["ppv"]["positive"]), _estimate(found["npv"]["positive"]))
    reference, called = _decisions(y_true, y_pred)
    values = values_at_prevalence(reference, called, np.asarray(_groups(groups, reference)), prevalence)
    return PredictiveValues(_estimate(values["ppv"]), _estimate(values["npv"]))


def mcnemar(y_true: ArrayLike, pred_a: ArrayLike, pred_b: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Test whether two models decide rightly equally often on the same images.

    Args:
        y_true: (n,) int or str, the reference class; any number of classes, n >= 1.
        pred_a: (n,) int or str, the classes that model A decides.
        pred_b: (n,) int or str, the classes that model B decides.
        groups: (n,) int or str, the patient of each image; None if all images are independent.

    Returns:
        The accuracy of A minus that of B, in [-1, 1], with its interval and the p-value of McNemar's test: the
        clustered test if a group has several images, else the mid-p test.

    Raises:
        ValueError: the lengths differ, an array is empty or a group is missing.

    Source: Obuchowski (1998), Statistics in Medicine 17:1495 (clustered); Fagerland, Lydersen & Laake (2013), BMC
    Medical Research Methodology 13:91 (mid-p); Newcombe (1998), Statistics in Medicine 17:2635 (interval).

    Example:
        >>> found = mcnemar([1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 1])
        >>> found.value, found.p
        (0.5, 0.25)
    """
    truth, a, b = (np.asarray(one) for one in (y_true, pred_a, pred_b))
    if truth.ndim != 1 or not len(truth) or not truth.shape == a.shape == b.shape:
        raise ValueError(f"expected three arrays of one length n >= 1, got shapes {truth.shape}, {a.shape}, {b.shape}")
    return _estimate(paired_difference(a == truth, b == truth, _groups(groups, truth), of="images"))


def _estimate(value: Mapping[str, Any]) -> Estimate:
    ci95 = value["ci95"]
    return Estimate(
        value=value["value"],
        ci95=None if ci95 is None else (ci95[0], ci95[1]),
        method=value.get("method", ""),
        n_groups=value["n_groups"],
        reason=value.get("reason"),
        warning=value.get("warning"),
        p=value.get("p"),
    )


def _groups(groups: ArrayLike | None, y_true: ArrayLike) -> ArrayLike:
    return np.arange(np.size(y_true)) if groups is None else groups


def _decisions(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    reference, called = check_positive(y_true), check_positive(y_pred)
    if len(reference) != len(called):
        raise ValueError(f"{len(called)} decisions for {len(reference)} labels")
    return reference, called


def _of_decisions(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None) -> dict[str, Any]:
    reference, called = _decisions(y_true, y_pred)
    return _figures(reference, np.eye(2)[called.astype(np.int64)], groups)


def _of_classes(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None) -> dict[str, Any]:
    truth, decided = np.asarray(y_true), np.asarray(y_pred)
    if truth.ndim != 1 or not len(truth) or truth.shape != decided.shape:
        raise ValueError(f"expected two arrays of one length n >= 1, got shapes {truth.shape} and {decided.shape}")
    names, codes = np.unique(np.concatenate([truth, decided]), return_inverse=True)
    prob = np.eye(max(len(names), 2))[codes[len(truth) :]]
    classes = [*map(str, names), f"other than {names[0]}"][: prob.shape[1]]
    return figure_values(codes[: len(truth)], prob, _groups(groups, truth), classes=classes, ranked=False)


def _figures(reference: np.ndarray, prob: np.ndarray, groups: ArrayLike | None) -> dict[str, Any]:
    label = reference.astype(np.int64)
    return figure_values(label, prob, _groups(groups, label), classes=("negative", "positive"), ranked=False)


def _at_target(y_true: ArrayLike, y_score: ArrayLike, rule: Rule, name: str, groups: ArrayLike | None) -> Estimate:
    reference = check_positive(y_true)
    own = np.asarray(_groups(groups, reference))
    choice = choose_threshold(reference, y_score, rule)
    if choice.threshold is None:
        return Estimate(None, None, "", len(np.unique(own)), reason=choice.reason)
    called = np.asarray(y_score, dtype=np.float64) >= choice.threshold
    found = _estimate(getattr(outcome(reference, called, own, interval=clustered_share), name))
    warning = "; ".join(filter(None, [found.warning, IN_SAMPLE]))
    return Estimate(found.value, found.ci95, found.method, found.n_groups, found.reason, warning)
