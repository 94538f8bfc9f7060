"""Confidence band of a ROC curve from resampling groups."""

import numpy as np

from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.intervals import ALPHA

GRID = np.linspace(0, 1, 101)
N_RESAMPLES = 1000
CHUNK = 100


def roc_band(
    positive: np.ndarray, score: np.ndarray, group: np.ndarray, *, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Compute the pointwise 95 % band of the sensitivity at each specificity by a cluster bootstrap (percentiles).

    Pointwise means that the band contains the curve at each specificity in 95 % of resamples; it contains the whole
    curve less often. The band takes the models as given.

    Args:
        positive: (n,) bool.
        score: (n,) finite float, higher for positive.
        group: (n,) the patient (or near-duplicate cluster) of each image; whole groups are drawn.
        n_resamples: number of resamples.
        seed: the same seed gives the same band.

    Returns:
        1 - specificity, and the sensitivity's lower and upper bound, (101,) each; None if a class is
        absent, there is only one group, or more than one resample in twenty misses a class.

    Source: Davison & Hinkley (1997), Bootstrap Methods, section 3.8; vertical averaging as in Fawcett (2006),
    Pattern Recognition Letters 27:861, section 8.
    """
    truth = check_positive(positive)
    values = check_score(score, len(truth))
    code, n_groups = group_codes(group, len(truth))
    if n_groups < 2 or truth.all() or not truth.any():
        return None
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    code, truth = code[order], truth[order].astype(np.float64)
    rng = np.random.default_rng(seed)
    curves = []
    for start in range(0, n_resamples, CHUNK):
        size = min(CHUNK, n_resamples - start)
        drawn = rng.integers(0, n_groups, (size, n_groups)) + n_groups * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n_groups).reshape(size, n_groups)
        weight = counts[:, code].astype(np.float64)  # (size, n)
        found = np.pad((weight * truth).cumsum(axis=1)[:, ends], ((0, 0), (1, 0)))
        false = np.pad((weight * (1 - truth)).cumsum(axis=1)[:, ends], ((0, 0), (1, 0)))
        for up, along in zip(found, false, strict=True):
            if up[-1] and along[-1]:
                curves.append(np.interp(GRID, along / along[-1], up / up[-1]))
    if len(curves) < 0.95 * n_resamples:
        return None
    low, high = np.quantile(np.array(curves), [ALPHA / 2, 1 - ALPHA / 2], axis=0)
    return GRID, low, high
