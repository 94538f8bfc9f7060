"""What each image adds to a figure: variances, several images a patient, and correlated models.

A figure of n images has the variance V / n, where V is the variance of its influence function: what one image of a
class adds to the figure, as a function of its linear predictor (the log-odds of its probability). If images of one
patient have the same label and scores with the correlation rho, the influences of two of them have a covariance that
follows from the same function, and with it the design effect. Scores enter as normal scores z within the class: if z
and z' are bivariate normal with the correlation r, E[f(z) g(z')] is the sum of r^k a_k b_k over the coefficients of f
and g in Hermite polynomials (Mehler's formula).

Source: Hampel (1974), JASA 69:383 (influence function); Abramowitz & Stegun (1964), chapter 22 (Hermite polynomials).
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import beta

Float = NDArray[np.float64]
_DEGREE = 60
"""Hermite polynomials in use; what they leave is added with the power of the next, so that no variance is lost."""
_STEP = 0.002
Z_GRID: Float = np.arange(-8.0, 8.0 + _STEP / 2, _STEP)
"""Normal scores at which functions are evaluated, evenly spaced."""
_DENSITY: Float = np.exp(-(Z_GRID**2) / 2) / np.sqrt(2 * np.pi) * _STEP
_N_NODES = 4001


@functools.cache
def _polynomials() -> Float:
    """Return (DEGREE + 1, grid) normalised Hermite polynomials times the density."""
    rows = [np.ones_like(Z_GRID), Z_GRID]
    for k in range(1, _DEGREE):
        rows.append((Z_GRID * rows[-1] - np.sqrt(k) * rows[-2]) / np.sqrt(k + 1))
    return np.array(rows) * _DENSITY


@dataclass(frozen=True)
class LinearPredictor:
    """Distribution of the linear predictor of a model that is calibrated in the planned population.

    Attributes:
        nodes: (K,) log-odds, ascending.
        positives: (K,) share of all images that are positive and have this value; sums to the prevalence.
        negatives: (K,) the same for negatives.
        says: the distribution in words.
    """

    nodes: Float
    positives: Float
    negatives: Float
    says: str

    @classmethod
    def by_class(cls, area: float, prevalence: float) -> "LinearPredictor":
        """Return the distribution that is normal in each class with one variance, from the AUC alone.

        For a calibrated model the variance is 2 z^2 with Phi(z) = AUC, and the means differ by the variance.

        Source: Riley et al. (2021), Statistics in Medicine 40:4230, section 4.6.3; Efron (1975), JASA 70:892.
        """
        spread = np.sqrt(2) * float(ndtri(area))
        middle, half = float(logit(prevalence)), spread**2 / 2
        nodes = np.linspace(middle - half - 8 * spread, middle + half + 8 * spread, _N_NODES)
        each = [np.exp(-(((nodes - middle - side * half) / spread) ** 2) / 2) for side in (-1, 1)]
        down, up = ((1 - prevalence) * each[0] / each[0].sum(), prevalence * each[1] / each[1].sum())
        return cls(nodes, up, down, f"normal in each class with an SD of {spread:.2f}, from the AUC of {area:.3f}")

    @classmethod
    def normal(cls, mean: float, sd: float) -> "LinearPredictor":
        """Return a normal distribution over all images; prevalence and AUC follow from it."""
        nodes = np.linspace(mean - 8 * sd, mean + 8 * sd, _N_NODES)
        weight = np.exp(-(((nodes - mean) / sd) ** 2) / 2)
        return cls._calibrated(nodes, weight, f"normal over all images, mean {mean:g}, SD {sd:g}")

    @classmethod
    def of_beta(cls, a: float, b: float) -> "LinearPredictor":
        """Return the log-odds of probabilities with a beta distribution over all images."""
        # Midpoints of equal shares of the probabilities: no node is at 0 or 1.
        p = beta.ppf((np.arange(_N_NODES) + 0.5) / _N_NODES, a, b)
        p = np.clip(p, 1e-15, 1 - 1e-15)
        return cls._calibrated(logit(p), np.ones(_N_NODES), f"probabilities with a beta({a:g}, {b:g}) distribution")

    @classmethod
    def observed(cls, log_odds: Float, positive: NDArray[np.bool_], prevalence: float, says: str) -> "LinearPredictor":
        """Return the distribution of (n,) observed log-odds, with the classes weighted to a prevalence."""
        order = np.argsort(log_odds, kind="stable")
        up = positive[order].astype(np.float64)
        return cls(log_odds[order], prevalence * up / up.sum(), (1 - prevalence) * (1 - up) / (1 - up).sum(), says)

    @classmethod
    def _calibrated(cls, nodes: Float, weight: Float, says: str) -> "LinearPredictor":
        share, p = weight / weight.sum(), expit(nodes)
        return cls(nodes, share * p, share * (1 - p), says)

    @property
    def prevalence(self) -> float:
        return float(self.positives.sum())

    @property
    def area(self) -> float:
        """AUC of the distribution; ties count one half."""
        return float(self._below(self.negatives) @ self.positives / self.positives.sum())

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and SD over all images."""
        share = self.positives + self.negatives
        mean = float(share @ self.nodes)
        return mean, float(np.sqrt(share @ (self.nodes - mean) ** 2))

    def called(self, threshold: float) -> tuple[float, float]:
        """Return sensitivity and specificity if probabilities of at least ``threshold`` are called positive."""
        above = self.nodes >= float(logit(threshold)) - 1e-12
        return float(self.positives[above].sum() / self.prevalence), float(
            self.negatives[~above].sum() / self.negatives.sum()
        )

    def placements(self) -> "Influence":
        """Return the influence function of the AUC."""
        area = self.area
        below = self._below(self.negatives)
        above = 1 - self._below(self.positives)
        return self.influence((below - area) / self.prevalence, (above - area) / (1 - self.prevalence))

    def influence(self, of_positive: Float, of_negative: Float) -> "Influence":
        """Return the influence function with (K,) values at the nodes for a positive and for a negative image."""
        return Influence(
            self.prevalence,
            _on_grid(self.positives, of_positive),
            _on_grid(self.negatives, of_negative),
        )

    def _below(self, weight: Float) -> Float:
        """Return the (K,) share of ``weight`` below each node, ties counting one half."""
        share = weight / weight.sum()
        start = np.searchsorted(self.nodes, self.nodes, "left")
        end = np.searchsorted(self.nodes, self.nodes, "right")
        total = np.concatenate([[0.0], share.cumsum()])
        return np.asarray((total[start] + total[end]) / 2)


@dataclass(frozen=True)
class Influence:
    """An influence function as a function of the normal score within each class.

    Attributes:
        prevalence: share of positives.
        of_positive: (grid,) what a positive image adds to the figure.
        of_negative: (grid,) what a negative image adds.
    """

    prevalence: float
    of_positive: Float
    of_negative: Float

    @property
    def variance(self) -> float:
        """V: the figure of n independent images has the variance V / n."""
        return self.covariance(self, 1.0)

    def covariance(self, other: "Influence", correlation: float) -> float:
        """Return E[f f'] over two images of one label whose normal scores have this correlation."""
        found = 0.0
        for share, one, two in (
            (self.prevalence, self.of_positive, other.of_positive),
            (1 - self.prevalence, self.of_negative, other.of_negative),
        ):
            a, b = _polynomials() @ one, _polynomials() @ two
            powers = float(correlation) ** np.arange(_DEGREE + 1)
            rest = float((one * two) @ _DENSITY - a @ b)
            found += share * (float((powers * a) @ b) + float(correlation) ** (_DEGREE + 1) * rest)
        return found

    def intraclass(self, correlation: float) -> float:
        """Return the correlation of the influences of two images of one patient, in [0, 1]."""
        variance = self.variance
        return min(1.0, max(0.0, self.covariance(self, correlation) / variance)) if variance > 0 else 0.0


def binormal_placements(area: float, prevalence: float) -> Influence:
    """Return the influence function of an AUC with normal scores of one variance in both classes."""
    apart = np.sqrt(2) * float(ndtri(area))
    return Influence(
        prevalence, (ndtr(Z_GRID + apart) - area) / prevalence, (ndtr(apart - Z_GRID) - area) / (1 - prevalence)
    )


def design_effect(intraclass: float, images: float, variation: float = 0.0) -> float:
    """Return the factor by which several images of a patient increase the number of images.

    Args:
        intraclass: correlation of what two images of a patient add to the figure.
        images: mean number of images of a patient, at least 1.
        variation: coefficient of variation (SD / mean) of that number.

    Source: Eldridge, Ashby & Kerry (2006), International Journal of Epidemiology 35:1292: 1 + ((1 + CV^2) m - 1) ICC;
    Kish (1965), Survey Sampling, section 5.4, for equal numbers: 1 + (m - 1) ICC.
    """
    return 1 + max((1 + variation**2) * images - 1, 0.0) * intraclass


def _on_grid(weight: Float, values: Float) -> Float:
    """Return values at the nodes of a class as a function of the normal score of the nodes."""
    share = weight / weight.sum()
    here = share > 0
    end = share[here].cumsum()
    middle = np.clip(end - share[here] / 2, 1e-15, 1 - 1e-15)
    return np.interp(ndtr(Z_GRID), middle, values[here])
