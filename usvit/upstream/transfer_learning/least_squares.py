"""The few-shot probe: regularised least squares from frozen features to targets of -1 and 1, in closed form."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.upstream.transfer_learning.affine import Affine

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

L2 = tuple(2.0**power for power in range(-10, 10))
"""Strengths of regularisation. An early grid of big_vision started there; its current code uses 2^10 for all."""
_BIAS = 100.0
"""A constant feature, so large that the bias is hardly regularised (big_vision, fewshot_lsr.py)."""
_TINY = 1e-5  # added to standard deviations, as in big_vision


@dataclass(frozen=True)
class LeastSquares:
    """The least-squares problem of some images, decomposed once, so that each strength takes only a few products.

    It minimises the sum over images of ||W' x + BIAS v - t||^2 + l2 (||W||^2 + ||v||^2), where x are the standardised
    features and t is 1 for the class of an image and -1 for all others.

    Source: Dosovitskiy et al. (2021), section 4.1, "a regularized least-squares regression problem that maps the
    (frozen) representation of a subset of training images to {-1, 1}^K target vectors"; whitening, bias and the use
    of eigenvectors as in big_vision, fewshot_lsr.py.
    """

    mean: Floats
    std: Floats
    eigenvalues: Floats
    left: Floats
    """Shape (D, r)."""
    right: Floats
    """Shape (r, K)."""
    of_bias: Floats
    """Sum of the targets times BIAS, of shape (K,)."""
    n: int

    @classmethod
    def of(cls, features: NDArray[np.floating], targets: Ints, n_classes: int) -> "LeastSquares":
        """Decompose the problem.

        Args:
            features: Shape (n, D).
            targets: Class of each image, of shape (n,).
            n_classes: Number of classes K.
        """
        x = np.asarray(features, dtype=np.float64)
        mean, std = x.mean(axis=0), x.std(axis=0) + _TINY
        x = (x - mean) / std
        t = np.full((len(x), n_classes), -1.0)
        t[np.arange(len(x)), targets] = 1.0
        # The features have mean 0, so the constant feature is orthogonal to them and its weight is independent.
        if len(x) >= x.shape[1]:
            eigenvalues, q = np.linalg.eigh(x.T @ x)
            left, right = q, q.T @ (x.T @ t)
        else:
            eigenvalues, q = np.linalg.eigh(x @ x.T)
            left, right = x.T @ q, q.T @ t
        return cls(mean, std, np.maximum(eigenvalues, 0), left, right, _BIAS * t.sum(axis=0), len(x))

    def solve(self, l2: float) -> Affine:
        """Return the solution for one strength > 0, as a map of the raw (not standardised) features."""
        weight = (self.left / (self.eigenvalues + l2)) @ self.right
        bias = _BIAS * self.of_bias / (self.n * _BIAS**2 + l2)
        return Affine.standardised(weight, bias, self.mean, self.std)


def choose(accuracy: pd.DataFrame) -> float:
    """Return the setting with the best validation accuracy, averaged over draws; the largest of equal ones.

    Args:
        accuracy: A table with the columns setting, draw and accuracy.
    """
    mean = accuracy.groupby("setting").accuracy.mean().round(12)
    return float(mean.index[mean == mean.max()].max())
