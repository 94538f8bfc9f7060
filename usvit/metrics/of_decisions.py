"""The public statistics of decisions: arrays in, an ``Estimate`` out.

Each function returns the same number as metrics.json holds for the same images, with its 95 % confidence interval.
``groups`` names the patient (or near-duplicate cluster) of each image. Images of one group are not independent, so
intervals count groups; without ``groups`` every image is taken as independent.
"""

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import FigureValues, figure_values
from usvit.metrics.checks import check_positive, groups_or_images
from usvit.metrics.paired_tests import paired_difference
from usvit.metrics.prevalence import PredictiveValues
from usvit.metrics.prevalence import predictive_values as values_at_prevalence


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
    return _of_decisions(y_true, y_pred, groups).figure("sensitivity", "positive")


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
    return _of_decisions(y_true, y_pred, groups).figure("specificity", "positive")


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
    return _of_classes(y_true, y_pred, groups).figure("accuracy")


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
    return _of_classes(y_true, y_pred, groups).figure("balanced_accuracy")


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
        return PredictiveValues(found.figure("ppv", "positive"), found.figure("npv", "positive"))
    reference, called = _decisions(y_true, y_pred)
    return values_at_prevalence(reference, called, np.asarray(groups_or_images(groups, reference)), prevalence)


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
    return paired_difference(a == truth, b == truth, groups_or_images(groups, truth), of="images")


def figures_of(reference: np.ndarray, prob: np.ndarray, groups: ArrayLike | None) -> FigureValues:
    """Return the figures of (n,) bool labels and (n, 2) probabilities, as metrics.json holds them."""
    label = reference.astype(np.int64)
    return figure_values(label, prob, groups_or_images(groups, label), classes=("negative", "positive"), ranked=False)


def _decisions(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    reference, called = check_positive(y_true), check_positive(y_pred)
    if len(reference) != len(called):
        raise ValueError(f"{len(called)} decisions for {len(reference)} labels")
    return reference, called


def _of_decisions(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None) -> FigureValues:
    reference, called = _decisions(y_true, y_pred)
    return figures_of(reference, np.eye(2)[called.astype(np.int64)], groups)


def _of_classes(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike | None) -> FigureValues:
    truth, decided = np.asarray(y_true), np.asarray(y_pred)
    if truth.ndim != 1 or not len(truth) or truth.shape != decided.shape:
        raise ValueError(f"expected two arrays of one length n >= 1, got shapes {truth.shape} and {decided.shape}")
    names, codes = np.unique(np.concatenate([truth, decided]), return_inverse=True)
    prob = np.eye(max(len(names), 2))[codes[len(truth) :]]
    classes = [*map(str, names), f"other than {names[0]}"][: prob.shape[1]]
    return figure_values(codes[: len(truth)], prob, groups_or_images(groups, truth), classes=classes, ranked=False)
