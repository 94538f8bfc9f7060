"""Conformal sets by patient, and selective prediction, of scores that are drawn.

A score is 1 for a positive image and -1 for another, plus the patient's own deviation (variance 0.5) and the image's
(0.5). The image is called positive above 0, and its confidence is the distance from 0.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import softmax

from benchmarks.coverage.generators import COHORTS, INFORMATIVE, Cohort, deviations, uneven_patients
from benchmarks.coverage.harness import Interval, Outcome, Row, Spread, Table, interval
from usvit.estimate import Estimate
from usvit.evaluation import fit_temperature
from usvit.metrics.conformal import GUARANTEES, patient_coverage, set_threshold
from usvit.metrics.proportions import clustered_share
from usvit.metrics.selective import AREA, RiskFigures, risk_coverage

CUT = 0.5
"""Images closer to 0 than this are deferred."""
MANY = 100_000
"""Patients from whom true values are computed."""
VALIDATION = Cohort("160 patients x 1 to 2, 51 positive", (2,) * 122 + (1,) * 38, 51)
"""Inner validation patients of a data set of 1,064."""


@dataclass(frozen=True)
class Calibrated(Row):
    """Positive patients of a cohort on whom a set is calibrated, and its promise."""

    cohort: Cohort
    alpha: float

    def images(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the numbers of images of the positive patients."""
        return rng.permutation(np.array(self.cohort.images))[: self.cohort.n_positive]


def conformal(row: Calibrated, k: int) -> Outcome:
    """Coverage of conformal sets over new patients, for both guarantees, and its spread over calibrations."""
    patient = np.repeat(np.arange(row.cohort.n_positive), row.images(np.random.default_rng([1, k])))
    score = deviations(patient, 0.5, np.random.default_rng([2, k]))
    outcome, (new_patient, new_score) = dict[str, Spread](), _new_patients(row)
    for guarantee in GUARANTEES:
        limit = set_threshold(score, patient, alpha=row.alpha, guarantee=guarantee).threshold
        if limit is not None:
            inside = np.bincount(new_patient, new_score >= limit) / np.bincount(new_patient)
            outcome[guarantee] = Spread(float((inside == 1 if guarantee == "every image" else inside).mean()))
    return outcome


@cache
def _new_patients(row: Calibrated) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    patient = np.repeat(np.arange(20_000), rng.choice(np.array(row.cohort.images), 20_000))
    return patient, deviations(patient, 0.5, rng)


def three_classes(n: int, k: int) -> Outcome:
    """Coverage of sets of three classes whose temperature is fitted on the same patients, by patients of each class."""
    rng, sets = np.random.default_rng([3, k]), []
    for count in (n, 400):
        label, patient = np.repeat(np.arange(3), 2 * count), np.repeat(np.arange(3 * count), 2)
        noise = rng.normal(size=(3 * count, 3))[patient] + rng.normal(size=(6 * count, 3))
        sets.append((label == 0, label, patient, 3 * (np.eye(3)[label] + 0.7 * noise)))
    (own, label, patient, logits), (new, _, new_patient, new_logits) = sets
    temperature = getattr(fit_temperature(label, logits), "value", 1.0)
    prob = softmax(logits / temperature, axis=1)[own, 0]
    limit = set_threshold(prob, patient[own], alpha=0.1, guarantee="every image").threshold
    covered = softmax(new_logits / temperature, axis=1)[new, 0] >= (limit or 0)
    found = patient_coverage(covered, new_patient[new], guarantee="every image").value
    assert found is not None
    return {"alpha 0.1": Spread(found)}


@dataclass(frozen=True)
class Selected(Row):
    """Patients, positive ones, and the images of each: 1 or 2 if that is 2, and None stands for 1 to 20.

    If informative, difficult patients have more images.
    """

    patients: int
    positives: int
    images: int | None
    informative: bool = False

    def draw(self, rng: np.random.Generator, times: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw labels, patients and scores."""
        n = self.patients * times
        if self.images is None:
            images, own = uneven_patients(rng, n, informative=INFORMATIVE * self.informative)
        else:
            lowest = 1 if self.images == 2 else self.images
            images, own = rng.integers(lowest, self.images + 1, n), rng.normal(size=n)
        patient = np.repeat(np.arange(n), images)
        positive = (np.arange(n) < self.positives * times)[patient]
        right = 1 - (own[patient] + rng.normal(size=len(patient))) / np.sqrt(2)  # the score on the side of its class
        return positive, patient, np.where(positive, right, -right)


def selective(row: Selected, k: int) -> Outcome:
    """Risk-coverage, deferral, rule-out, and the coverage of sets that test patients show."""
    true, cut, limit = _truths(row)
    positive, patient, score = row.draw(np.random.default_rng([11, k]))
    curve = risk_coverage(np.abs(score), (score > 0) != positive, patient, shares=[0.5, 0.8])
    found = {"AURC": interval(curve.area, true["AURC"])}
    for name, low, high in zip(("risk at 0.5", "risk at 0.8"), curve.lower, curve.upper, strict=True):
        ends = (np.nan, np.nan) if low is None or high is None else (low, high)
        found[name] = Interval(*ends, true[name])
    values = _values(positive, patient, score, cut, limit)
    return found | {name: interval(value, true[name]) for name, value in values.items()}


def _values(
    positive: np.ndarray, patient: np.ndarray, score: np.ndarray, cut: float, limit: float
) -> dict[str, Estimate]:
    """Return the figures of deferral, rule-out and sets."""
    wrong, rest = (score > 0) != positive, np.abs(score) >= CUT
    ill, highest = rest & positive, _highest(patient, score)
    lost = highest[: len(np.unique(patient[positive]))] < cut
    shares = {
        "share deferred": (~rest, patient),
        "error of the rest": (wrong[rest], patient[rest]),
        "sensitivity of the rest": (score[ill] > 0, patient[ill]),
        "rule-out: sensitivity lost": (lost, np.arange(len(lost))),
    }
    sets = {
        f"set: {guarantee}": patient_coverage(score[positive] >= limit, patient[positive], guarantee=guarantee)
        for guarantee in GUARANTEES
    }
    return {name: clustered_share(hits, group) for name, (hits, group) in shares.items()} | sets


def _highest(patient: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the highest score of each patient."""
    return np.asarray(np.maximum.reduceat(score, np.flatnonzero(np.r_[True, np.diff(patient) > 0])))


@cache
def _truths(row: Selected) -> tuple[dict[str, float], float, float]:
    """Return the true figures, from many patients, and the cut of the rule-out and the limit of the set."""
    positive, patient, score = row.draw(np.random.default_rng(10), MANY // row.patients)
    risks = RiskFigures(np.abs(score), (score > 0) != positive, np.zeros(len(score), int), (0.5, 0.8))(np.ones((1, 1)))
    true = {name: float(risks[key][0]) for name, key in (("AURC", AREA), ("risk at 0.5", 0.5), ("risk at 0.8", 0.8))}
    cut = float(np.quantile(_highest(patient[~positive], score[~positive]), 0.4))
    limit = float(np.quantile(score[positive], 0.1))
    values = _values(positive, patient, score, cut, limit)
    return true | {name: float(value.value or 0.0) for name, value in values.items()}, cut, limit


TABLES = {
    "conformal": Table(
        tuple(Calibrated(cohort, a) for cohort in (COHORTS[1], COHORTS[0], VALIDATION) for a in (0.2, 0.1, 0.05)),
        conformal,
        1000,
    ),
    "conformal-three-classes": Table((9, 25, 100), three_classes, 1000),
    "selective": Table(
        (
            Selected(38, 13, 18),
            Selected(1064, 342, 2),
            *(
                Selected(n, up, None, informative)
                for n, up in ((11, 4), (40, 13), (74, 22))
                for informative in (False, True)
            ),
        ),
        selective,
    ),
}
