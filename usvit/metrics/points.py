"""Point estimates of how well a classifier does, from labels and probabilities alone.

The decision is the most probable class; among equals, the first in the order of the classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

Value = dict[str, Any]
"""One number with its company: {"value", "ci95", "method", "n_groups"}, or a null value with its "reason"."""


def decide(prob: np.ndarray) -> np.ndarray:
    """(n, K) probabilities -> (n,) int, the index of the most probable class (the first of equals)."""
    return np.asarray(prob).argmax(axis=1)


def auc(positive: np.ndarray, score: np.ndarray) -> float | None:
    """Area under the ROC curve: how often a positive scores above a negative, ties counting one half.

    Args:
        positive: (n,) bool.
        score: (n,) float, higher for positive.

    Returns:
        A value in [0, 1], or None where there are no positives or no negatives.
    """
    if len(np.unique(positive)) < 2:
        return None
    return float(roc_auc_score(positive, score))


def roc(positive: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The ROC curve as (1 - specificity, sensitivity), both ascending from 0 to 1; None as in ``auc``."""
    if len(np.unique(positive)) < 2:
        return None
    false_positive, true_positive, _ = roc_curve(positive, score)
    return false_positive, true_positive


def confusion(label: np.ndarray, prob: np.ndarray) -> np.ndarray:
    """(K, K) int counts; rows are the reference label, columns the decision."""
    return confusion_matrix(label, decide(prob), labels=range(prob.shape[1]))


def point_estimates(
    label: np.ndarray, prob: np.ndarray, group: np.ndarray, *, classes: Sequence[str], positive: str
) -> dict[str, Any]:
    """Every metric of one set of images.

    A class's sensitivity and specificity take it against all others, at the decision of ``decide``.
    An average over classes is undefined as soon as one class is: averages over different classes
    must not stand side by side as if they were one quantity.

    Args:
        label: (n,) int, index of the reference class; n >= 1.
        prob: (n, K) float64, rows sum to one.
        group: (n,) str, the patient (or duplicate cluster) of each image.
        classes: K names.
        positive: one of them. With two classes, both AUCs are the area for its probability: the
            other's is its mirror image, and rounding must not make two numbers of one.

    Returns:
        accuracy, balanced_accuracy, auc_macro_ovr and log_loss as one Value each; auc
        (``<class>_vs_rest``), sensitivity and specificity as a Value for each class. The n_groups of
        a Value counts the groups that it rests on: for a sensitivity, those with an image of the class.
    """
    counts = confusion(label, prob)
    n = int(counts.sum())
    true, reference, decided = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    groups = _n_groups(group)

    areas: dict[str, Value] = {}
    sensitivity: dict[str, Value] = {}
    specificity: dict[str, Value] = {}
    for k, name in enumerate(classes):
        is_class = label == k
        without = n - int(reference[k])
        none, only = f"no image of class '{name}'", f"every image is of class '{name}'"
        why = none if not reference[k] else only
        if len(classes) == 2:
            p = list(classes).index(positive)
            area = auc(label == p, prob[:, p])
        else:
            area = auc(is_class, prob[:, k])
        areas[f"{name}_vs_rest"] = _value(area, groups, why)
        sensitivity[name] = _value(_share(true[k], reference[k]), _n_groups(group[is_class]), none)
        negatives_kept = without - int(decided[k] - true[k])
        specificity[name] = _value(_share(negatives_kept, without), _n_groups(group[~is_class]), only)

    chosen = prob[np.arange(n), label]
    # A probability of exactly 0 would make the mean infinite; float64's resolution bounds it, as in scikit-learn.
    log_loss = -np.log(np.maximum(chosen, np.finfo(np.float64).eps)).mean()
    return {
        "accuracy": _value(_share(true.sum(), n), groups),
        "balanced_accuracy": _mean_value(sensitivity, groups),
        "auc_macro_ovr": _mean_value(areas, groups),
        "log_loss": _value(max(float(log_loss), 0.0), groups),
        "auc": areas,
        "sensitivity": sensitivity,
        "specificity": specificity,
    }


def _value(value: float | None, n_groups: int, reason: str = "") -> Value:
    if value is None:
        return {"value": None, "ci95": None, "reason": reason, "n_groups": n_groups}
    return {"value": value, "ci95": None, "method": "point estimate", "n_groups": n_groups}


def _mean_value(values: dict[str, Value], n_groups: int) -> Value:
    for one in values.values():
        if one["value"] is None:
            return _value(None, n_groups, one["reason"])
    return _value(float(np.mean([one["value"] for one in values.values()])), n_groups)


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None


def _n_groups(group: np.ndarray) -> int:
    return len(set(group.tolist()))
