"""The loss as a function of shape and compute, and the shape of the smallest loss.

    f(x, t) = sum_k alpha_k x_k^(-a_k) + (sum_k beta_k x_k^(b_k) + xi) t^(-c) + eps

is the decomposable form of Alabdulmohsin et al. 2023, section 3: x_k are the dimensions of the shape, t is the compute,
and all coefficients are at least 0. Along one dimension it is the paper's f_k(x_k, t), whose other terms are constant.
The data exponent c and the irreducible loss eps are shared by all dimensions. For a fixed compute the best value is

    x_k*(t) = (alpha_k a_k t^c / (beta_k b_k))^(1 / (a_k + b_k)),    proportional to t^(s_k), s_k = c / (a_k + b_k).

Shape and compute are divided by reference values (their geometric means in the data), so that coefficients of very
different dimensions are comparable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Surface:
    """One fitted form; arrays have one entry for each dimension."""

    reference: Array
    """Values by which the dimensions are divided."""
    compute_reference: float
    alpha: Array
    a: Array
    beta: Array
    b: Array
    xi: float
    c: float
    eps: float

    @property
    def exponents(self) -> Array:
        """s_k = c / (a_k + b_k), by which the best value of a dimension grows with compute; NaN if it has none."""
        defined = (self.alpha > 0) & (self.beta > 0)
        return np.where(defined, self.c / (self.a + self.b), np.nan)

    def loss(self, shape: ArrayLike, compute: ArrayLike) -> Array:
        """Return the loss.

        Args:
            shape: Dimensions, as (..., K).
            compute: Compute, as (...).
        """
        x = np.asarray(shape, float) / self.reference
        t = (np.asarray(compute, float) / self.compute_reference) ** -self.c
        saved = (self.alpha * x**-self.a).sum(-1)
        spent = (self.beta * x**self.b).sum(-1) + self.xi
        return np.asarray(saved + spent * t + self.eps, dtype=np.float64)

    def optimum(self, compute: ArrayLike) -> Array:
        """Return the shape of the smallest loss at each compute, as (..., K); NaN for a dimension that has none."""
        t = np.asarray(compute, float)[..., None] / self.compute_reference
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(self.alpha * self.a) - np.log(self.beta * self.b) + self.c * np.log(t)
            best = self.reference * np.exp(log / (self.a + self.b))
        return np.where((self.alpha > 0) & (self.beta > 0), best, np.nan)


def surface_of(numbers: Sequence[float], reference: Array, compute_reference: float) -> Surface:
    """Return the surface of the numbers that ``numbers_of`` lists."""
    k = len(reference)
    values = np.asarray(numbers, float)
    alpha, a, beta, b = (values[part * k : (part + 1) * k] for part in range(4))
    return Surface(reference, compute_reference, alpha, a, beta, b, *(float(one) for one in values[4 * k :]))


def numbers_of(surface: Surface) -> list[float]:
    """Return alpha, a, beta and b of all dimensions, then xi, c and eps."""
    whole = np.concatenate(
        [surface.alpha, surface.a, surface.beta, surface.b, [surface.xi, surface.c, surface.eps]], dtype=np.float64
    )
    return [float(one) for one in whole]
