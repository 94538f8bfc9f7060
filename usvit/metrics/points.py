"""What everything else is made of: the decision, the area under the curve, the confusion table.

The decision is the most probable class; among equals, the first in the order of the classes.
"""

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
