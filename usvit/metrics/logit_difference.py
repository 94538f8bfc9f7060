"""The difference of two paired AUCs, with an interval from the logits of both.

The standard error of an AUC near 1 depends on the AUC: where few difficult patients were drawn, the AUC is too high,
and its standard error and that of a difference are too small. A symmetric interval of the difference then misses the
true value nearly always on one side. On the logit scale the error hardly depends on the value. The interval therefore
takes both logits as a bivariate Student variable and reads the quantiles of the difference of the two AUCs.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import fsum

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr, stdtr, stdtrit

from usvit.metrics.intervals import Interval

_GRID = np.linspace(-8.0, 8.0, 641)
"""Nodes of the quadrature, as normal deviates: the trapezoidal rule of a smooth integrand converges fast."""
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()
_NARROWEST = 2 * float(_GRID[1] - _GRID[0])
"""A correlation near 1 makes the integrand a step; the step must be wider than the grid to be seen."""


@dataclass(frozen=True)
class LogitDifference:
    """Two figures in (0, 1) of the same patients and the difference A minus B, with its interval at any level.

    The two logits are bivariate Student variables around the logits of the figures. Their SDs are the standard errors
    divided by value (1 - value) (the delta method), and they have the correlation of the two figures. To first order
    the variance of the difference is that of the two figures, so for many patients the interval is the usual one.

    Attributes:
        a, b: the figures, in (0, 1).
        error_a, error_b: their standard errors, > 0.
        correlation: of the two estimates, in [-1, 1].
        freedom: degrees of freedom, > 0; infinite for a normal distribution.

    Raises:
        ValueError: a number is out of its range.

    Source: quantiles of a function of generalized pivotal quantities: Weerahandi (1993), Journal of the American
    Statistical Association 88:899; for paired AUCs of binormal scores Li, Liao & Liu (2008), Statistics in Medicine
    27:224. The logit scale: Pepe (2003), The Statistical Evaluation of Medical Tests, section 5.2.4.

    >>> pair = LogitDifference(a=0.96, b=0.92, error_a=0.012, error_b=0.022, correlation=0.8, freedom=25)
    >>> low, high = pair.interval(0.05)
    >>> f"{pair.difference:.3f} ({low:.3f} to {high:.3f}), p {pair.p:.3f}"
    '0.040 (0.016 to 0.077), p 0.001'
    """

    a: float
    b: float
    error_a: float
    error_b: float
    correlation: float
    freedom: float

    def __post_init__(self) -> None:
        if not (0 < self.a < 1 and 0 < self.b < 1):
            raise ValueError(f"the figures are {self.a} and {self.b}, expected numbers above 0 and below 1")
        if not all(0 < error < np.inf for error in (self.error_a, self.error_b)):
            raise ValueError(f"the standard errors are {self.error_a} and {self.error_b}, expected positive numbers")
        if not -1 <= self.correlation <= 1:
            raise ValueError(f"the correlation is {self.correlation}, expected a number from -1 to 1")
        if not self.freedom > 0:
            raise ValueError(f"there are {self.freedom} degrees of freedom, expected a positive number")

    @property
    def difference(self) -> float:
        return self.a - self.b

    @property
    def swapped(self) -> "LogitDifference":
        """B minus A."""
        return LogitDifference(self.b, self.a, self.error_b, self.error_a, self.correlation, self.freedom)

    @property
    def p(self) -> float:
        """Two-sided p of no difference: twice the probability of the other sign, in closed form.

        It is below alpha exactly if the interval of level 1 - alpha excludes 0.
        """
        spread = self._spread(self._correlation)
        return 2 * float(stdtr(self._freedom, -abs(logit(self.a) - logit(self.b)) / spread))

    def interval(self, alpha: float) -> Interval:
        """Return the quantiles alpha / 2 and 1 - alpha / 2 of the difference."""
        return self._quantile(alpha / 2), -self.swapped._quantile(alpha / 2)

    def one_sided_p(self, boundary: float, *, above: bool) -> float:
        """Compute the one-sided p of the claim that the true difference lies above (or below) a boundary in (-1, 1)."""
        return self.below(boundary) if above else self.swapped.below(-boundary)

    def below(self, boundary: float) -> float:
        """Compute the probability that the difference is at most a boundary in (-1, 1).

        One variable is integrated numerically; given this one, the other is a scaled Student variable with one more
        degree of freedom.
        """
        mean, scale, narrow, side = self._given
        # A is at most B plus the boundary, or B at least A minus the boundary. Both tails of the logit stay exact.
        share, rest = expit(narrow) + side * boundary, expit(-narrow) - side * boundary
        with np.errstate(divide="ignore"):
            limit = np.log(np.maximum(share, 0.0)) - np.log(np.maximum(rest, 0.0))
        return fsum(_WEIGHTS * stdtr(self._freedom + 1, side * (limit - mean) / scale))

    def _quantile(self, p: float) -> float:
        """Return the p-quantile of the difference, p < 0.5, searched for near that of a symmetric distribution."""
        variance = self.error_a**2 + self.error_b**2 - 2 * self._correlation * self.error_a * self.error_b
        low, high = max(self.difference + 3 * stdtrit(self._freedom, p) * np.sqrt(variance), -1.0), self.difference
        if self.below(low) > p:
            low = -1.0
        if self.below(high) < p:
            high = 1.0
        return float(brentq(lambda boundary: self.below(boundary) - p, low, high, xtol=1e-10, rtol=1e-10))

    def _spread(self, correlation: float) -> float:
        """Return the SD of the difference of the two logits."""
        one, other = self._sds
        return float(np.sqrt((one - other) ** 2 + 2 * (1 - correlation) * one * other))

    @property
    def _freedom(self) -> float:
        """The degrees of freedom, at most so many that the distribution is normal to all digits shown."""
        return min(self.freedom, 1e7)

    @property
    def _sds(self) -> tuple[float, float]:
        return self.error_a / (self.a * (1 - self.a)), self.error_b / (self.b * (1 - self.b))

    @cached_property
    def _correlation(self) -> float:
        """The correlation, bounded so that the grid resolves the integrand: its error is below 0.2 % of an SD."""
        spread, wide = self._spread(self.correlation), max(self._sds)
        most = np.sqrt(max(1 - (_NARROWEST * max(spread, 1e-9) / wide) ** 2, 0.0))
        return float(np.clip(self.correlation, -most, most))

    @cached_property
    def _given(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Mean and scale of the wider logit given each node of the narrower, the latter, and 1 if A's is the wider."""
        sd_a, sd_b = self._sds
        a_is_wider = sd_a >= sd_b
        centre, wide, own, narrow = (
            (logit(self.a), sd_a, logit(self.b), sd_b) if a_is_wider else (logit(self.b), sd_b, logit(self.a), sd_a)
        )
        freedom = self._freedom
        t = _student_nodes(freedom)
        c = self._correlation
        scale = wide * np.sqrt((1 - c * c) * (freedom + t * t) / (freedom + 1))
        return centre + c * wide * t, scale, own + narrow * t, 1 if a_is_wider else -1


@lru_cache(maxsize=16)
def _student_nodes(freedom: float) -> np.ndarray:
    """Return the nodes of the quadrature as Student deviates; plans ask for the same again and again."""
    half = stdtrit(freedom, ndtr(_GRID[_GRID <= 0]))
    return np.concatenate([half, -half[-2::-1]])
