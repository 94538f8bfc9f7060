"""Validation of the arrays that statistics take: labels, scores and groups.

An invalid array is an error of the caller and raises ``ValueError`` with the index of the row. Errors in the user's
files are found earlier, when a predictions table is read (``predictions.check_predictions``).
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike


def check_positive(positive: ArrayLike) -> np.ndarray:
    """Convert (n,) bool or 0/1 to (n,) bool.

    Raises:
        ValueError: there is no row, or a label is neither 0 nor 1.
    """
    values = np.asarray(positive)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"expected one label for each of at least one row, got shape {values.shape}")
    bad = ~np.isin(values, (0, 1))
    if bad.any():
        raise ValueError(f"label {values[bad][0]!r} at index {int(bad.argmax())} is neither 0 nor 1")
    return values.astype(bool)


def check_score(score: ArrayLike, n: int) -> np.ndarray:
    """Convert (n,) numbers to (n,) float64.

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
    """Convert labels (n,) and probabilities (n, K) to int64 and float64; n >= 1, K >= 2.

    Raises:
        ValueError: shapes that do not fit; a label that is not an integer in 0 ... K - 1; a
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


def check_scores(label: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Convert labels (n,) and scores (n, K) to int64 and float64; n >= 1, K >= 2.

    Raises:
        ValueError: shapes that do not fit; a label that is not an integer in 0 ... K - 1; a score that is
            not finite. The index of the row is named.
    """
    values = np.asarray(scores, dtype=np.float64)
    bad = ~np.isfinite(values)
    if values.ndim == 2 and bad.any():
        index = int(bad.any(axis=1).argmax())
        raise ValueError(f"the scores at index {index} are {values[index]}, expected finite numbers")
    codes, _ = check_prob(label, np.full(values.shape, 0.5))
    return codes, values


def group_codes(group: ArrayLike, n: int) -> tuple[np.ndarray, int]:
    """Convert (n,) group names to (n,) int64 codes in sorted order, and count the groups.

    The codes are sorted so that the order of the rows does not affect which groups a seed draws.

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


def groups_or_images(groups: ArrayLike | None, y_true: ArrayLike) -> ArrayLike:
    """Return (n,) groups; every image is its own if ``groups`` is None."""
    return np.arange(np.size(y_true)) if groups is None else groups
