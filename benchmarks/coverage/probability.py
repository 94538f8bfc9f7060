"""Bands of decision curves and intervals of calibration, of log-odds whose calibration is known.

27 % of the patients are positive. The log-odds of a network without skill are noise. Those of a network with skill d
are calibrated: normally distributed around +d^2 / 2 for positives and -d^2 / 2 for others, relative to the prevalence,
with a standard deviation of d. For calibration they are stretched and shifted by a known slope and intercept.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

from benchmarks.coverage.generators import uneven_patients
from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval
from usvit.metrics.calibration_intervals import debiased_ece
from usvit.metrics.calibration_statistics import calibration_line, equal_mass_bins
from usvit.metrics.decision_curves import THRESHOLDS, simultaneous_band

SHARE, AT, RESAMPLES = 0.27, np.array(THRESHOLDS), 500


@dataclass(frozen=True)
class Patients(Row):
    """Patients and images of each; None stands for 1 to 20."""

    patients: int
    images: int | None

    def draw(self, rng: np.random.Generator, skill: float, spread: float = 1.0) -> tuple[np.ndarray, ...]:
        """Draw labels by patient, log-odds, and patients."""
        n = self.patients
        images, own = uneven_patients(rng, n) if not self.images else (self.images, rng.normal(size=n))
        patient = np.repeat(np.arange(n), images)
        positive = (rng.random(n) < SHARE)[patient]
        noise = np.sqrt(0.5) * (own[patient] + rng.normal(size=len(patient)))
        odds = skill * (skill * positive + noise - skill / 2) if skill else spread * noise
        return positive, logit(SHARE) + odds, patient


PATIENTS = tuple(
    Patients(n, images) for n, images in ((240, 1), (780, 1), (390, 2), (38, 18), (40, None), (74, None), (11, None))
)


@dataclass(frozen=True)
class Network(Row):
    """Patients, and a network with skill, or without skill and a spread of its log-odds."""

    patients: Patients
    skill: float
    spread: float = 1.0


def curves(row: Network, k: int) -> Outcome:
    """Whether a network is called better than both defaults somewhere, and whether the band holds the whole curve."""
    positive, odds, patient = row.patients.draw(np.random.default_rng([3, k]), row.skill, row.spread)
    band = simultaneous_band(positive, expit(odds), patient, AT, n_resamples=RESAMPLES, seed=k)
    if isinstance(band, str):
        return {}
    limit, defaults = logit(AT) - logit(SHARE), AT / (1 - AT)
    if row.skill:
        found, needless = (norm.sf((limit + sign * row.skill**2 / 2) / row.skill) for sign in (-1, 1))
    else:
        found = needless = norm.sf(limit / row.spread)
    truth = found * SHARE - needless * (1 - SHARE) * defaults - np.maximum(SHARE - (1 - SHARE) * defaults, 0)
    low, high = np.array(band.lower), np.array(band.upper)
    above, sure = np.array(band.difference) > 1e-12, low > 1e-12
    return {
        "better by the estimate": float(above.any()),
        "better by the band": float(sure.any()),
        "thresholds by the estimate": float(above.sum()),
        "thresholds by the band": float(sure.sum()),
        "the band holds the curve": float(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).all()),
    }


@dataclass(frozen=True)
class Miscalibrated(Row):
    """Patients, and the slope and intercept of the network's log-odds."""

    patients: Patients
    slope: float
    intercept: float


def calibration(row: Miscalibrated, k: int) -> Outcome:
    """Slope, intercept, calibration-in-the-large and expected calibration error (ECE)."""
    share, said, large = _population(row.slope, row.intercept)
    positive, odds, patient = row.patients.draw(np.random.default_rng([5, k]), 1.5)
    own = (odds - row.intercept) / row.slope
    line, which = calibration_line(positive, own, patient), equal_mass_bins(expit(own))
    at = np.searchsorted([expit(own[which == j].max()) for j in range(which.max())], expit(said))
    n_bins = int(which.max()) + 1
    deviation = np.bincount(at, share - expit(said), n_bins) / np.maximum(np.bincount(at, minlength=n_bins), 1)
    truth = float(np.bincount(which) / len(which) @ np.abs(deviation))
    found = debiased_ece(positive - expit(own), which, patient, n_resamples=RESAMPLES, seed=k)
    return {
        "slope": interval(line.slope, row.slope),
        "intercept": interval(line.intercept, row.intercept),
        "in the large": interval(line.in_the_large, large),
        "ECE": Interval(*(found.ci95 or (np.nan, np.nan)), truth),
        "plain ECE": float(np.abs(np.bincount(which, positive - expit(own))).sum() / len(which)),
        "debiased ECE": float(found.value),
    }


@cache
def _population(slope: float, shift: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return true probabilities, the network's log-odds, and the true calibration-in-the-large."""
    positive, odds, _ = Patients(400_000, 1).draw(np.random.default_rng(4), 1.5)
    said = (odds - shift) / slope
    return expit(odds), said, float(brentq(lambda a: expit(a + said).mean() - positive.mean(), -10, 10))


TABLES = {
    "curves": Table(
        (
            *(Network(patients, 0.0, spread) for patients in PATIENTS for spread in (0.2, 1.0)),
            *(Network(PATIENTS[n], skill) for n, skill in ((1, 0.5), (1, 1.0), (2, 1.0), (1, 2.0), (5, 1.0))),
        ),
        curves,
        200,
    ),
    "calibration": Table(
        tuple(Miscalibrated(patients, *line) for patients in PATIENTS for line in ((1.0, 0.0), (0.6, 0.0), (1.0, 0.4))),
        calibration,
    ),
}
