"""Interval of a share from its variation between folds, for procedures that a bootstrap does not reproduce.

A threshold that is the lowest of a few scores is such a procedure: 63 % of the resamples contain the lowest score
itself, and none contains a lower one. Each fold has chosen its threshold on other patients, so the folds
show how much the choice varies.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.stats import t as student

from usvit.metrics.intervals import ALPHA, Interval, effective_wilson

METHOD = "variation between folds, Wilson with Student's t"
_MIN_FOLDS = 3
_MAX_OVERLAP = 0.5
"""Above this share of common groups, folds show too little of the variation between choices."""


def fold_variation_interval(value: float, of_folds: Sequence[float], overlap: float) -> Interval | None:
    """Compute Wilson's interval of a share for the number of images that gives it the variance between K folds.

    The values of two folds have the correlation r if a share r of the groups that chose their thresholds is the same.
    The variance of the mean is then S^2 / (1 - r) (1/K + r (K - 1)/K), with K - 1 degrees of freedom.

    Args:
        value: the share over all folds.
        of_folds: (K,) the share of each fold.
        overlap: r, in [0, 1] (``mean_overlap``).

    Returns:
        None with fewer than ``_MIN_FOLDS`` folds or more than ``_MAX_OVERLAP`` of common groups; an interval of
        length 0 if the folds do not vary.

    Source: after Nadeau & Bengio (2003), Machine Learning 52:239, section 3 (correlated folds); Wilson's interval for
    an effective number as in ``intervals.effective_wilson``.
    """
    k = len(of_folds)
    if k < _MIN_FOLDS or overlap > _MAX_OVERLAP:
        return None
    spread = float(np.var(of_folds, ddof=1))
    if spread < 1e-12 or not 0 < value < 1:
        return value, value
    variance = spread / (1 - overlap) * (1 / k + overlap * (k - 1) / k)
    quantile = float(student.ppf(1 - ALPHA / 2, k - 1))
    return effective_wilson(value, value * (1 - value) / variance, quantile=quantile)


def mean_overlap(groups: Sequence[np.ndarray]) -> float:
    """Compute the mean share of groups that two folds have in common, over pairs of folds; 0 for one fold.

    Args:
        groups: the groups that choose the threshold of each fold, (n_k,) with n_k >= 1; repetitions do not count.
    """
    sets = [set(one.tolist()) for one in groups]
    pairs = [len(a & b) / np.sqrt(len(a) * len(b)) for a, b in combinations(sets, 2)]
    return float(np.mean(pairs)) if pairs else 0.0
