"""The few-shot probe: regularised least squares from frozen features to targets of -1 and 1, in closed form."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.errors import UsvitError
from usvit.seeding import derive_seed
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


def draw_shots(targets: Ints, k: int, seed: int, draw: int) -> Ints:
    """Draw the rows of ``k`` images of each class, sorted by class; they include those of every smaller k.

    Args:
        targets: Class of each training image, of shape (n,).
        k: Images per class; every class must have at least this many (``check_shots``).
        seed: Seed of the run.
        draw: Number of the draw, from 0.
    """
    rng = np.random.default_rng(derive_seed(seed, "shots", draw))
    of_class = [rng.permutation(np.flatnonzero(targets == label)) for label in range(int(targets.max()) + 1)]
    return np.concatenate([rows[:k] for rows in of_class])


def check_shots(targets: Ints, classes: Sequence[str], shots: Sequence[int]) -> None:
    """Refuse to draw more images of a class than it has.

    Raises:
        UsvitError: A class, which is named, has too few images.
    """
    counts = np.bincount(targets, minlength=len(classes))
    fewest = int(counts.argmin())
    if counts[fewest] < max(shots):
        able = [k for k in shots if k <= counts[fewest]]
        advice = f"Pass --set shots=[{', '.join(map(str, able))}]" if able else "Choose other images"
        raise UsvitError(
            f"{max(shots)} images of each class are to be drawn, but class '{classes[fewest]}' has "
            f"{counts[fewest]} training images. {advice}, or use fewer images for validation (source.val_share)."
        )


def choose(accuracy: pd.DataFrame) -> float:
    """Return the strength with the best validation accuracy, averaged over draws; the largest of equal ones.

    Args:
        accuracy: A table with the columns l2, draw and accuracy.
    """
    mean = accuracy.groupby("l2").accuracy.mean().round(12)
    return float(mean.index[mean == mean.max()].max())
