"""Intervals of ``usvit recalibrate``, for networks whose log-odds are twice as large as they should be.

The log-odds of a patient's images are normally distributed around +- D^2 / 2 with variance D^2, so that they are
calibrated, with an AUC of Phi(D / sqrt 2) = 0.90. Two images of one patient have a correlation of 0.5. The true
sensitivity of a fitted threshold follows from the normal distribution.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from benchmarks.coverage.generators import deviations
from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval
from usvit.metrics.threshold_choice import Rule
from usvit.scoring.external.recalibration import LabelledImages, fit

D = float(np.sqrt(2) * norm.ppf(0.90))
TEMPERATURE, RESAMPLES = 2.0, 300
RULES = {"sensitivity at least 0.9": Rule("sensitivity", 0.9), "Youden": Rule("youden")}
BEST = expit(D**2 / 2 + D * norm.ppf(0.1))
"""Threshold on calibrated probabilities at which the sensitivity is 0.9."""


@dataclass(frozen=True)
class Labelled(Row):
    """Patients with cancer, as many without, and images of each."""

    patients: int
    images: int

    def draw(self, rng: np.random.Generator) -> LabelledImages:
        label = np.repeat([0, 1], self.patients * self.images)
        patient = np.repeat(np.arange(2 * self.patients), self.images)
        odds = TEMPERATURE * (np.where(label == 1, D**2 / 2, -(D**2) / 2) + D * deviations(patient, 0.5, rng))
        return LabelledImages(label, np.stack([expit(-odds), expit(odds)], 1), patient.astype(str).astype(object), 1)


def recalibration(row: Labelled, k: int) -> Outcome:
    """Temperature, thresholds, and sensitivities at them: apparent, corrected for optimism, and true."""
    images = row.draw(np.random.default_rng([7, k]))
    found = fit(images, "malignant", rules=tuple(RULES.values()), n_resamples=RESAMPLES, seed=k)
    temperature = found.temperature
    outcome: dict[str, Interval | float] = {"temperature": _interval(temperature.ci95, TEMPERATURE)}
    for name, one in zip(RULES, found.thresholds, strict=True):
        apparent = one.sensitivity
        if one.threshold is None or apparent is None or apparent.value is None:
            continue
        if name.startswith("sensitivity"):
            outcome["threshold"] = _interval(one.ci95, BEST)
        limit = logit(one.threshold) * (temperature.value or 1.0) / TEMPERATURE
        true = float(norm.sf((limit - D**2 / 2) / D))
        outcome[f"{name}: interval"] = interval(apparent, true)
        outcome[f"{name}: apparent"], outcome[f"{name}: true"] = apparent.value, true
        if apparent.corrected is not None:
            outcome[f"{name}: corrected"] = apparent.corrected
    return outcome


def _interval(ends: tuple[float, float] | None, truth: float) -> Interval:
    return Interval(*(ends or (np.nan, np.nan)), truth)


TABLES = {
    "recalibration": Table(
        tuple(Labelled(*shape) for shape in ((12, 1), (25, 1), (50, 1), (100, 1), (25, 3), (50, 3))), recalibration, 150
    )
}
