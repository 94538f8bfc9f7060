"""Sample sizes: precise validation of a model, precise sensitivity and specificity, and power to compare two AUCs.

All sizes are of independent images, before a design effect (``influence.design_effect``), and not yet rounded up.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

from usvit.config.planning import ComparisonTest
from usvit.metrics.influence import Z_GRID, Influence, LinearPredictor
from usvit.metrics.intervals import Z

LARGEST = 1e9
"""A study of more images than this is not planned."""


class PreciseFigure(Protocol):
    """A figure whose 95 % interval has a width that depends on the number of images."""

    @property
    def influence(self) -> Influence: ...

    def size(self, width: float) -> float:
        """Return the images for an interval of this width."""
        ...

    def width(self, n: float) -> float:
        """Return the width of the interval from n images."""
        ...


@dataclass(frozen=True)
class ObservedExpected:
    """Precision of the ratio of observed to expected positives.

    Source: Riley et al. (2021), Statistics in Medicine 40:4230, section 3.1: SE(ln O/E) = sqrt((1 - phi) / (n phi)).
    """

    prevalence: float
    ratio: float = 1.0

    @property
    def influence(self) -> Influence:
        """Influence of ln O/E with the expected number as given; all that counts is the label."""
        one = np.ones_like(Z_GRID)
        return Influence(self.prevalence, one * (1 - self.prevalence) / self.prevalence, -one)

    def size(self, width: float) -> float:
        """Return the images for a 95 % interval of this width on the scale of the ratio."""
        error = np.arcsinh(width / (2 * self.ratio)) / Z
        return float((1 - self.prevalence) / (self.prevalence * error**2))

    def width(self, n: float) -> float:
        """Return the width of the interval from n images."""
        error = np.sqrt((1 - self.prevalence) / (self.prevalence * n))
        return float(2 * self.ratio * np.sinh(min(Z * error, 20.0)))  # beyond, the interval says nothing at all


@dataclass(frozen=True)
class CalibrationSlope:
    """Precision of the calibration slope of a calibrated model.

    Source: Riley et al. (2021), Statistics in Medicine 40:4230, section 3.2: the inverse of Fisher's information of the
    recalibration line, over the distribution of the linear predictor.
    """

    predictor: LinearPredictor

    def _information(self) -> tuple[float, float, float]:
        share = self.predictor.positives + self.predictor.negatives
        p, x = expit(self.predictor.nodes), self.predictor.nodes
        weight = share * p * (1 - p)
        return float(weight.sum()), float(weight @ x), float(weight @ x**2)

    @property
    def influence(self) -> Influence:
        a, ab, b = self._information()
        p, x = expit(self.predictor.nodes), self.predictor.nodes
        each = (x - ab / a) / (b - ab**2 / a)
        return self.predictor.influence((1 - p) * each, -p * each)

    @property
    def variance(self) -> float:
        """Variance of the slope times the number of images."""
        a, ab, b = self._information()
        return a / (a * b - ab**2)

    def size(self, width: float) -> float:
        return self.variance * (2 * Z / width) ** 2

    def width(self, n: float) -> float:
        return float(2 * Z * np.sqrt(self.variance / n))


@dataclass(frozen=True)
class AreaPrecision:
    """Precision of the AUC (c-statistic).

    Source: Riley et al. (2021), Statistics in Medicine 40:4230, section 3.3, with the variance of Newcombe (2006),
    Statistics in Medicine 25:559, method 4.
    """

    area: float
    prevalence: float
    predictor: LinearPredictor
    """Only the design effect depends on it."""

    @property
    def influence(self) -> Influence:
        return self.predictor.placements()

    @property
    def _scatter(self) -> float:
        return self.area * (1 - self.area)

    @property
    def _slope(self) -> float:
        return (1 - self.area) / (2 - self.area) + self.area / (1 + self.area)

    def size(self, width: float) -> float:
        square = (width / (2 * Z)) ** 2 * self.prevalence * (1 - self.prevalence)
        half, rest = self._scatter * self._slope / 2, self._scatter * (1 - self._slope)
        return float((half + np.sqrt(half**2 + 4 * square * rest)) / (2 * square))

    def width(self, n: float) -> float:
        variance = self._scatter * (1 + (n / 2 - 1) * self._slope) / (n**2 * self.prevalence * (1 - self.prevalence))
        return float(2 * Z * np.sqrt(variance))


@dataclass(frozen=True)
class NetBenefit:
    """Precision of the standardised net benefit at a threshold probability.

    The standardised net benefit is sensitivity - (1 - specificity) w, with w = (1 - phi) / phi * t / (1 - t); 1 is
    perfect.

    Source: Riley et al. (2021), Statistics in Medicine 40:4230, section 3.4; the variance of Marsh et al. (2020),
    Biometrics 76:852.
    """

    sensitivity: float
    specificity: float
    prevalence: float
    threshold: float

    @property
    def _weight(self) -> float:
        return (1 - self.prevalence) / self.prevalence * self.threshold / (1 - self.threshold)

    @property
    def value(self) -> float:
        return self.sensitivity - (1 - self.specificity) * self._weight

    @property
    def influence(self) -> Influence:
        found, needless = _hits(self.sensitivity), _hits(1 - self.specificity)
        of_share = (1 - self.specificity) * self._weight / (self.prevalence * (1 - self.prevalence))
        return Influence(
            self.prevalence,
            (found - self.sensitivity) / self.prevalence + of_share * (1 - self.prevalence),
            -self._weight * (needless - (1 - self.specificity)) / (1 - self.prevalence) - of_share * self.prevalence,
        )

    @property
    def variance(self) -> float:
        """Variance of the standardised net benefit times the number of images."""
        false = 1 - self.specificity
        return float(
            self.sensitivity * (1 - self.sensitivity) / self.prevalence
            + self._weight**2 * self.specificity * false / (1 - self.prevalence)
            + self._weight**2 * false**2 / (self.prevalence * (1 - self.prevalence))
        )

    def size(self, width: float) -> float:
        return self.variance * (2 * Z / width) ** 2

    def width(self, n: float) -> float:
        return float(2 * Z * np.sqrt(self.variance / n))


@dataclass(frozen=True)
class SharePrecision:
    """Precision of a sensitivity or specificity by Wilson's interval, which usvit reports.

    ``share`` of the images, ``of_all`` (such as the prevalence), carry the figure. The size counts all images.

    Source: Wilson (1927), JASA 22:209; that the number of positives follows from the prevalence: Buderer (1996),
    Academic Emergency Medicine 3:895.
    """

    value: float
    of_all: float

    @property
    def influence(self) -> Influence:
        return Influence(1.0, _hits(self.value) - self.value, np.zeros_like(Z_GRID))

    def half_width(self, n: float) -> float:
        """Return the half width of the interval from n images of all classes."""
        own = n * self.of_all
        return float(Z / (1 + Z**2 / own) * np.sqrt(self.value * (1 - self.value) / own + Z**2 / (4 * own**2)))

    def size(self, half_width: float) -> float:
        own = brentq(lambda n: self.half_width(n / self.of_all) - half_width, 1e-3, LARGEST)
        return float(own) / self.of_all


@dataclass(frozen=True)
class AreaComparison:
    """Power to compare the AUCs of two models on the same images.

    Scores are normal with one variance in each class. ``null`` is the variance, times the number of images, on which
    the bound of the test of a difference rests: ``variance`` itself for a test that estimates it from the study, as
    usvit's does, or that of two models with one AUC, as in the source.

    Source: Obuchowski & McClish (1997), Statistics in Medicine 16:1529; the variance is that of DeLong's estimate,
    computed from the influence functions of both AUCs.
    """

    difference: float
    variance: float
    null: float
    test: ComparisonTest = "difference"
    margin: float = 0.0
    alpha: float = 0.05
    """Two-sided for a difference; twice the one-sided level for non-inferiority; one-sided for equivalence."""

    def power(self, n: float) -> float:
        """Return the probability of the claim from n images."""
        error, null = np.sqrt(self.variance / n), np.sqrt(self.null / n)
        if self.test == "difference":
            bound = float(norm.ppf(1 - self.alpha / 2)) * null
            return float(norm.sf((bound - abs(self.difference)) / error))
        if self.test == "noninferiority":
            bound = float(norm.ppf(1 - self.alpha / 2)) * error
            return float(norm.sf((bound - self.margin - self.difference) / error))
        bound = float(norm.ppf(1 - self.alpha)) * error
        upper, lower = (self.margin - bound - self.difference) / error, (bound - self.margin - self.difference) / error
        return max(0.0, float(norm.cdf(upper) - norm.cdf(lower)))

    def size(self, power: float) -> float | None:
        """Return the images for this power, at least 2; None if more than ``LARGEST`` do not suffice."""
        if self.power(LARGEST) < power:
            return None
        if self.power(2.0) >= power:
            return 2.0
        odds = brentq(lambda one: self.power(np.exp(one)) - power, np.log(2.0), np.log(LARGEST), xtol=1e-10)
        return float(np.exp(odds))

    def half_width(self, n: float) -> float:
        """Return the half width of the 95 % interval of the difference."""
        return float(Z * np.sqrt(self.variance / n))


def difference_variance(one: Influence, other: Influence, correlation: float) -> float:
    """Return the variance of the difference of two figures of the same images, times their number."""
    return one.variance + other.variance - 2 * one.covariance(other, correlation)


def difference_intraclass(one: Influence, other: Influence, correlation: float, within: float) -> float:
    """Return the correlation of what two images of a patient add to the difference of two figures.

    The scores of two models on two images of a patient are taken to have the correlation ``correlation * within``.
    """
    between = one.covariance(one, within) + other.covariance(other, within)
    between -= 2 * one.covariance(other, correlation * within)
    variance = difference_variance(one, other, correlation)
    return min(1.0, max(0.0, between / variance)) if variance > 0 else 0.0


def shifted(log_odds: np.ndarray, line: tuple[float, float], from_share: float, to_share: float) -> np.ndarray:
    """Return log-odds that are calibrated by an (intercept, slope) and moved to another prevalence by Bayes' rule."""
    return np.asarray(line[0] + line[1] * log_odds + float(logit(to_share)) - float(logit(from_share)))


def _hits(share: float) -> np.ndarray:
    """Return (grid,) whether an image with this normal score is called, if this share of the class is."""
    return (float(norm.isf(share)) <= Z_GRID).astype(np.float64)
