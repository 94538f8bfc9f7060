"""The few-shot probe: regularised least squares from frozen features to targets of -1 and 1, in closed form."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.errors import UsvitError
from usvit.seeding import derive_seed
from usvit.transfer.affine import Affine

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

L2 = tuple(2.0**power for power in range(-10, 10))
"""Strengths to choose among; big_vision's grid began there, and its code of today takes 2^10 for all."""
BIAS = 100.0
"""A constant feature so large that the bias is hardly regularised (big_vision, fewshot_lsr.py)."""
_TINY = 1e-5  # added to standard deviations, as there


@dataclass(frozen=True)
class LeastSquares:
    """The problem of some images, decomposed once: each strength is then a few products.

    Minimises sum over images of ||W' x + BIAS v - t||^2 + l2 (||W||^2 + ||v||^2), x being the standardised features
    and t = 1 for an image's class and -1 for all others.

    Source: Dosovitskiy et al. (2021), section 4.1, "a regularized least-squares regression problem that maps the
    (frozen) representation of a subset of training images to {-1, 1}^K target vectors"; whitening, bias and the use
    of eigenvectors as in big_vision, fewshot_lsr.py.
    """

    mean: Floats
    std: Floats
    eigenvalues: Floats
    left: Floats
    """(D, r)."""
    right: Floats
    """(r, K)."""
    of_bias: Floats
    """(K,) sum of the targets times BIAS."""
    n: int

    @classmethod
    def of(cls, features: NDArray[np.floating], targets: Ints, n_classes: int) -> "LeastSquares":
        """Decompose.

        Args:
            features: (n, D).
            targets: (n,) class of each image.
            n_classes: K.
        """
        x = np.asarray(features, dtype=np.float64)
        mean, std = x.mean(axis=0), x.std(axis=0) + _TINY
        x = (x - mean) / std
        t = np.full((len(x), n_classes), -1.0)
        t[np.arange(len(x)), targets] = 1.0
        # The features have mean 0, so that the constant one is orthogonal to them: its weight stands alone.
        if len(x) >= x.shape[1]:
            eigenvalues, q = np.linalg.eigh(x.T @ x)
            left, right = q, q.T @ (x.T @ t)
        else:
            eigenvalues, q = np.linalg.eigh(x @ x.T)
            left, right = x.T @ q, q.T @ t
        return cls(mean, std, np.maximum(eigenvalues, 0), left, right, BIAS * t.sum(axis=0), len(x))

    def solve(self, l2: float) -> Affine:
        """The solution for one strength > 0, on features as they are (not standardised)."""
        weight = (self.left / (self.eigenvalues + l2)) @ self.right
        bias = BIAS * self.of_bias / (self.n * BIAS**2 + l2)
        return Affine.standardised(weight, bias, self.mean, self.std)


def draw_shots(targets: Ints, k: int, seed: int, draw: int) -> Ints:
    """Rows of ``k`` images of each class, by class; those of a smaller k are among them.

    Args:
        targets: (n,) class of each training image.
        k: images of each class; each must have so many (``check_shots``).
        seed: of the run.
        draw: number of the draw.
    """
    rng = np.random.default_rng(derive_seed(seed, "shots", draw))
    of_class = [rng.permutation(np.flatnonzero(targets == label)) for label in range(int(targets.max()) + 1)]
    return np.concatenate([rows[:k] for rows in of_class])


def check_shots(targets: Ints, classes: Sequence[str], shots: Sequence[int]) -> None:
    """Refuse more images of a class than there are.

    Raises:
        UsvitError: naming the class.
    """
    counts = np.bincount(targets, minlength=len(classes))
    fewest = int(counts.argmin())
    if counts[fewest] < max(shots):
        able = [k for k in shots if k <= counts[fewest]]
        advice = f"Pass --set shots=[{', '.join(map(str, able))}]" if able else "Choose other images"
        raise UsvitError(
            f"{max(shots)} images of each class are to be drawn, but class '{classes[fewest]}' has "
            f"{counts[fewest]} training images. {advice}, or keep fewer back to validate on (source.val_share)."
        )


def choose(accuracy: pd.DataFrame) -> float:
    """The strength of the best mean validation accuracy over draws; of equal ones the strongest.

    Args:
        accuracy: columns l2, draw, accuracy.
    """
    mean = accuracy.groupby("l2").accuracy.mean().round(12)
    return float(mean.index[mean == mean.max()].max())
