"""Fit how a cost grows with the size of its input: a fixed start-up, and a part that grows as a power of the size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

MIN_GROWING_SHARE = 0.2
"""Share of the cost at the largest size by which it exceeds that at the smallest. Below it, the exponent of the growth
cannot be told from the start-up."""
MIN_RISE = 0.02
"""The same for a straight line that is extrapolated."""
LARGEST_EXPONENT = 4.0


@dataclass(frozen=True)
class Growth:
    """The cost a + b n^p of an input of size n."""

    fixed: float
    """a, the start-up, in the unit of the costs; at least 0."""
    factor: float
    """b, at least 0."""
    exponent: float | None
    """p; None if the cost hardly grows (``MIN_GROWING_SHARE``), so that p cannot be estimated."""
    slope: float
    """Least-squares slope of log cost over log n, start-up included."""
    linear: tuple[float, float] | None
    """Intercept and slope of a straight line through the costs, fitted by relative deviations; None if it does not rise
    (``MIN_RISE``)."""

    def size_at(self, limit: float) -> float | None:
        """Return the size at which the cost passes a limit, by the straight line; None if the line does not rise.

        A power above 1 passes it earlier, so its own curve is used if the exponent is above 1.1.
        """
        if self.linear is None or limit <= self.linear[0]:
            return None
        if self.exponent is not None and self.exponent > 1.1:
            return float(((limit - self.fixed) / self.factor) ** (1 / self.exponent))
        return float((limit - self.linear[0]) / self.linear[1])


def fit_growth(sizes: Sequence[float], costs: Sequence[float]) -> Growth:
    """Fit a + b n^p by least squares of the logarithms, so that each size counts the same.

    Args:
        sizes: at least four different sizes n.
        costs: the cost of each size, positive, in any unit. A size may occur several times.

    Raises:
        ValueError: fewer than four different sizes, or a size or cost that is not positive.
    """
    n, cost = np.asarray(sizes, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    if len(np.unique(n)) < 4 or len(n) != len(cost):
        raise ValueError("a curve of three parameters needs at least four different sizes, each with its cost")
    if (n <= 0).any() or not (cost > 0).all():
        raise ValueError("sizes and costs must be positive")
    largest = n.max()

    def predicted(parameters: np.ndarray) -> np.ndarray:
        fixed, grown, exponent = parameters
        return np.asarray(fixed + grown * (n / largest) ** exponent)

    # Both parts are in units of the largest cost, so that they are of one order of magnitude.
    scale = cost.max()
    fits = [
        least_squares(
            lambda parameters: np.log(np.maximum(predicted(parameters), 1e-12)) - np.log(cost / scale),
            (start * cost.min() / scale, 1 - start * cost.min() / scale + 1e-3, exponent),
            bounds=([0, 0, 0.1], [np.inf, np.inf, LARGEST_EXPONENT]),
        )
        for start in (0.1, 0.95)
        for exponent in (0.7, 1.0, 2.0)
    ]
    fixed, grown, exponent = min(fits, key=lambda one: one.cost).x
    slope = np.polyfit(np.log(n), np.log(cost), 1)[0] if np.ptp(cost) else 0.0
    rise, intercept = np.polyfit(n, cost, 1, w=1 / cost)
    spread = 1 - (n.min() / largest) ** exponent
    return Growth(
        fixed=float(fixed * scale),
        factor=float(grown * scale / largest**exponent),
        exponent=float(exponent) if grown * spread >= MIN_GROWING_SHARE * (fixed + grown) else None,
        slope=float(slope),
        linear=(float(intercept), float(rise)) if rise * np.ptp(n) >= MIN_RISE * cost.max() else None,
    )
