"""What the statistics take, checked once: a label, a score for every row, and whose row it is.

These are arrays, not files: a wrong one is a mistake of the caller (``ValueError``, with the index of the row).
The user's mistakes are met earlier, where a predictions table is read (``predictions.check_predictions``).
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike


def check_positive(positive: ArrayLike) -> np.ndarray:
    """(n,) bool or 0/1 -> (n,) bool.

    Raises:
        ValueError: there is no row, or one is neither true nor false.
    """
    values = np.asarray(positive)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"expected one label for each of at least one row, got shape {values.shape}")
    bad = ~np.isin(values, (0, 1))
    if bad.any():
        raise ValueError(f"label {values[bad][0]!r} at index {int(bad.argmax())} is neither 0 nor 1")
    return values.astype(bool)


def check_score(score: ArrayLike, n: int) -> np.ndarray:
    """(n,) numbers -> (n,) float64.

    Raises:
        ValueError: the length is not n, or a score is NaN or infinite (the index is named).
    """
    values = np.asarray(score, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(f"scores have shape {values.shape}, expected {(n,)}")
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(f"the score at index {int(bad.argmax())} is {values[bad][0]}")
    return values


def check_prob(label: ArrayLike, prob: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n,) int and probabilities (n, K) -> the same as int64 and float64; n >= 1, K >= 2.

    Raises:
        ValueError: shapes that do not fit; a label that is no whole number in 0 ... K - 1; a
            probability that is NaN or outside [0, 1]. The index of the row is named.
    """
    codes, p = np.asarray(label), np.asarray(prob, dtype=np.float64)
    if codes.ndim != 1 or not len(codes) or p.ndim != 2 or len(p) != len(codes) or p.shape[1] < 2:
        raise ValueError(f"expected labels (n,) and probabilities (n, K), got {codes.shape} and {p.shape}")
    bad = ~np.isin(codes, np.arange(p.shape[1]))
    if bad.any():
        raise ValueError(f"label {codes[bad][0]!r} at index {int(bad.argmax())} is not in 0 to {p.shape[1] - 1}")
    bad = np.logical_not(np.logical_and(p >= 0, p <= 1).all(axis=1))  # NaN is neither
    if bad.any():
        raise ValueError(f"the probabilities at index {int(bad.argmax())} are {p[bad][0]}, expected 0 to 1")
    return codes.astype(np.int64), p


def group_codes(group: ArrayLike, n: int) -> tuple[np.ndarray, int]:
    """Any group names (n,) -> (n,) int64 codes in the names' sorted order, and how many groups there are.

    Sorted, so that the order of the rows does not decide which groups a seed draws.

    Raises:
        ValueError: the length is not n, or a group is missing (the index is named).
    """
    names = np.asarray(group)
    if names.shape != (n,):
        raise ValueError(f"groups have shape {names.shape}, expected {(n,)}")
    codes, found = pd.factorize(names, sort=True)
    if (codes < 0).any():
        raise ValueError(f"the group at index {int((codes < 0).argmax())} is missing")
    return codes.astype(np.int64), len(found)
