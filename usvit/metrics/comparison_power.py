"""Power of the test that ``usvit compare`` makes of two AUCs on the same images, whose interval is not symmetric.

Near 1 the standard error of an AUC depends on the AUC: a study that draws a few more difficult images than usual has a
lower AUC and a longer interval. The usual formula (``sample_size.AreaComparison``) takes the error as fixed and the
interval as symmetric. It promises 0.80 where a study with AUCs of 0.98 and a margin of 0.03 shows its claim in 0.62
(docs/how-to/plan.md). Here the claim is computed for each pair of AUCs that the study may observe.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr

from usvit.config.planning import ComparisonTest
from usvit.metrics.influence import Influence, binormal_placements
from usvit.metrics.logit_difference import LogitDifference
from usvit.metrics.sample_size import LARGEST, AreaComparison, difference_variance

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_AREAS = expit(np.linspace(-1.0, 9.0, 81))
"""Areas at which the variance is computed; between them it is interpolated."""
_REACH = 7.0
"""Observed logits are searched this many standard errors from the true one."""


@dataclass(frozen=True)
class ObservedComparison:
    """Power to compare the AUCs a and b of two models on n independent images, by ``LogitDifference``.

    Scores are normal with one variance in each class. The observed logits of both AUCs are normal around the true ones.
    For each observed pair, the standard errors are those of scores with these AUCs, and the correlation of the two
    estimates is the true one. The degrees of freedom are those of the two classes (Satterthwaite).

    Attributes:
        a, b: true AUCs in (0.5, 1).
        prevalence: share of positive images.
        correlation: of the scores of both models within a class.
        test, margin, alpha: as ``sample_size.AreaComparison``.
    """

    a: float
    b: float
    prevalence: float
    correlation: float
    test: ComparisonTest = "difference"
    margin: float = 0.0
    alpha: float = 0.05

    @cached_property
    def symmetric(self) -> AreaComparison:
        """The same comparison with a fixed standard error and a symmetric interval."""
        one, other = self._placements
        variance = difference_variance(one, other, self.correlation)
        return AreaComparison(self.a - self.b, variance, variance, self.test, self.margin, self.alpha)

    def half_width(self, n: float) -> float:
        """Return the half width of the 95 % interval of the difference, as if it were symmetric."""
        return self.symmetric.half_width(n)

    def power(self, n: float) -> float:
        """Return the probability of the claim from n images.

        The observed logit of b runs over the nodes of a quadrature. Given it, the claim holds on one side of some
        observed logit of a, or (equivalence) between two.
        """
        sds = [float(np.sqrt(one.variance / n)) / (area * (1 - area)) for one, area in self._models]
        one, other = self._placements
        together = float(
            np.clip(one.covariance(other, self.correlation) / np.sqrt(one.variance * other.variance), -1, 1)
        )
        centre, spread = float(logit(self.a)), sds[0] * float(np.sqrt(max(1 - together**2, 1e-12)))
        freedom = self._freedom(n)
        share = 0.0
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            seen_b = float(logit(self.b)) + sds[1] * node
            middle = centre + sds[0] * together * node

            def p(u: float, boundary: float, above: bool, seen_b: float = seen_b) -> float:
                pair = self._observed(float(expit(u)), float(expit(seen_b)), n, together, freedom)
                return pair.one_sided_p(boundary, above=above)

            def above(boundary: float, level: float, middle: float = middle) -> float:
                """Return the share of observed logits of a whose claim "the difference is above" holds."""
                found = _crossing(lambda u: level - p(u, boundary, True), middle, spread)
                return float(ndtr((middle - found) / spread))

            def below(boundary: float, level: float, middle: float = middle) -> float:
                found = _crossing(lambda u: p(u, boundary, False) - level, middle, spread)
                return float(ndtr((found - middle) / spread))

            if self.test == "difference":
                claimed = above(0.0, self.alpha / 2) + below(0.0, self.alpha / 2)
            elif self.test == "noninferiority":
                claimed = above(-self.margin, self.alpha / 2)
            else:
                claimed = above(-self.margin, self.alpha) + below(self.margin, self.alpha) - 1
            share += float(weight) * max(0.0, claimed)
        return min(1.0, share)

    def size(self, power: float) -> float | None:
        """Return the images for this power, at least those of the usual formula; None if ``LARGEST`` do not suffice."""
        low = self.symmetric.size(power)
        if low is None or self.power(low) >= power:
            return low
        high = low * 1.5
        while high < LARGEST and self.power(high) < power:
            low, high = high, high * 1.5
        if high >= LARGEST:
            return None
        odds = brentq(lambda one: self.power(float(np.exp(one))) - power, np.log(low), np.log(high), xtol=1e-3)
        return float(np.exp(odds))

    @cached_property
    def _placements(self) -> tuple[Influence, Influence]:
        return binormal_placements(self.a, self.prevalence), binormal_placements(self.b, self.prevalence)

    @property
    def _models(self) -> tuple[tuple[Influence, float], tuple[Influence, float]]:
        one, other = self._placements
        return (one, self.a), (other, self.b)

    @cached_property
    def _log_variances(self) -> np.ndarray:
        """Logarithm of the variance, times the number of images, at ``_AREAS``."""
        return np.log([binormal_placements(float(area), self.prevalence).variance for area in _AREAS])

    def _observed(self, a: float, b: float, n: float, together: float, freedom: float) -> LogitDifference:
        a, b = (min(max(area, float(_AREAS[0])), float(_AREAS[-1])) for area in (a, b))
        errors = np.sqrt(np.exp(np.interp(logit([a, b]), logit(_AREAS), self._log_variances)) / n)
        return LogitDifference(a, b, float(errors[0]), float(errors[1]), together, freedom)

    def _freedom(self, n: float) -> float:
        """Return the degrees of freedom of the variance of the difference, from those of both classes."""
        one, other = self._placements
        none = np.zeros_like(one.of_positive)
        parts = []
        for share, up in ((self.prevalence, True), (1 - self.prevalence, False)):
            own = [
                Influence(each.prevalence, each.of_positive if up else none, none if up else each.of_negative)
                for each in (one, other)
            ]
            parts.append((difference_variance(own[0], own[1], self.correlation), max(share * n - 1, 1.0)))
        return sum(part for part, _ in parts) ** 2 / sum(part**2 / freedom for part, freedom in parts)


def _crossing(claim: Callable[[float], float], middle: float, spread: float) -> float:
    """Return the observed logit at which an ascending function is 0; an end of the range if it is nowhere."""
    low, high = middle - _REACH * spread, middle + _REACH * spread
    if claim(low) >= 0:
        return low
    if claim(high) <= 0:
        return high
    return float(brentq(claim, low, high, xtol=2e-3 * spread))
