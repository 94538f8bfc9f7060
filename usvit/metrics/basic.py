"""Basic statistics: the decision, the AUC, the ROC curve and the confusion matrix.

The decision is the most probable class; for equal probabilities, the first in the order of the classes. scikit-learn is
imported on use, because it takes half a second and a training needs it only after its first steps.
"""

import numpy as np


def decide(prob: np.ndarray) -> np.ndarray:
    """Return the (n,) int index of the most probable class from (n, K) probabilities; the first of equal ones."""
    return np.asarray(prob).argmax(axis=1)


def auc(positive: np.ndarray, score: np.ndarray) -> float | None:
    """Compute the area under the ROC curve: how often a positive scores above a negative; ties count one half.

    Args:
        positive: (n,) bool.
        score: (n,) float, higher for positive.

    Returns:
        A value in [0, 1], or None if there are no positives or no negatives.
    """
    if len(np.unique(positive)) < 2:
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, score))


def roc(positive: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Compute the ROC curve as (1 - specificity, sensitivity), both ascending from 0 to 1; None as in ``auc``."""
    if len(np.unique(positive)) < 2:
        return None
    from sklearn.metrics import roc_curve

    false_positive, true_positive, _ = roc_curve(positive, score)
    return false_positive, true_positive


def confusion(label: np.ndarray, prob: np.ndarray) -> np.ndarray:
    """Compute (K, K) int counts; rows are the reference label, columns the decision."""
    from sklearn.metrics import confusion_matrix

    return confusion_matrix(label, decide(prob), labels=range(prob.shape[1]))
