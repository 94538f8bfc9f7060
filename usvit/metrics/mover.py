"""Intervals of a weighted sum of estimates from the intervals of each (MOVER, method of variance estimates recovery).

An estimated variance is 0 if every image of a class is right, or none is. The interval of a share is not: it has a
bound on the other side. The distance to that bound replaces the standard error, so that such a class adds what it
must to a mean or a difference.

Source: Newcombe (1998), Statistics in Medicine 17:873 (independent) and 17:2635 (paired); Zou & Donner (2008),
Statistics in Medicine 27:1693; Zou, Huang & Zhang (2009), Computational Statistics & Data Analysis 53:1080 (sums).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from usvit.metrics.intervals import Interval


def weighted_interval(
    values: Sequence[float], ends: Sequence[Interval], weights: Sequence[float], correlation: ArrayLike
) -> Interval:
    """Compute the interval of sum w_k v_k.

    Args:
        values: K estimates.
        ends: the interval of each.
        weights: K numbers; a negative one exchanges the two ends.
        correlation: (K, K), of the estimates.
    """
    v, w, (low, high) = np.asarray(values), np.asarray(weights), np.asarray(ends).T
    r = np.asarray(correlation)
    down, up = w * np.where(w > 0, v - low, high - v), w * np.where(w > 0, high - v, v - low)
    middle = float(w @ v)
    return middle - float(np.sqrt(max(down @ r @ down, 0.0))), middle + float(np.sqrt(max(up @ r @ up, 0.0)))


def mean_interval(
    values: Sequence[float], ends: Sequence[Interval], adds: np.ndarray, unknown: ArrayLike = 1.0
) -> Interval:
    """Compute the interval of the mean of K estimates in [0, 1]; ``adds`` and ``unknown`` as ``correlations``."""
    low, high = weighted_interval(values, ends, [1 / len(values)] * len(values), correlations(adds, unknown))
    return max(low, 0.0), min(high, 1.0)


def correlations(adds: np.ndarray, unknown: ArrayLike = 1.0) -> np.ndarray:
    """Estimate the (K, K) correlation of K estimates from the contributions of the groups.

    Args:
        adds: (K, G) contributions of each group, relative to their mean.
        unknown: a number or (K, K), the correlation with an estimate whose contributions are all 0.
    """
    products = adds @ adds.T
    size = np.sqrt(np.diag(products))
    scale = np.outer(size, size)
    found = np.divide(products, scale, out=np.broadcast_to(unknown, scale.shape).astype(float), where=scale > 1e-20)
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1.0, 1.0)


def common_groups(present: np.ndarray) -> np.ndarray:
    """Return the (K, K) share of groups that two of K sets of images have in common, from (K, G) bool."""
    shared = present.astype(float) @ present.T
    size = np.sqrt(np.diag(shared))
    return np.asarray(shared / np.outer(size, size))
