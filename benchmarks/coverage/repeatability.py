"""Repeated scores whose components of variance are known.

A logit is the mean of its patient (SD 1.2) plus that of its image (SD 0.8). Two repeats of an image add errors of SD
0.5; a change adds 0.2 and a deviation of SD 0.4, of which 60 % is the patient's. In rows "uneven", the SD of the errors
of a patient is multiplied by a log-normal factor (SD 0.3 of its logarithm, mean square 1). True values are those of 4
million images, each of another patient. Flips: two repeats on different sides of the threshold 0.5.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy.special import expit

from benchmarks.coverage.generators import COHORTS, Cohort
from benchmarks.coverage.harness import Outcome, Row, Table, interval
from usvit.metrics.repeatability import LIMIT, flip_rate, paired_repeats, unordered_repeats


@dataclass(frozen=True)
class Repeated(Row):
    """Pairs without an order ("repeats") or images before and after a change, as logits or as probabilities."""

    kind: Literal["repeats", "changes"]
    cohort: Cohort
    uneven_by: float = 0.0
    probability: bool = False

    def draw(self, rng: np.random.Generator, images: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Draw logits (n, 2) and patients. Repeats pair the images of a patient, so that 18 images are 9 things."""
        repeats = self.kind == "repeats"
        groups = len(images)
        patient = np.repeat(np.arange(groups), [n // 2 for n in images] if repeats else images)
        n = len(patient)
        factor = np.exp(self.uneven_by * rng.normal(size=groups) - self.uneven_by**2)[patient]
        base = -0.5 + 1.2 * rng.normal(size=groups)[patient] + 0.8 * rng.normal(size=n)
        if repeats:
            return base[:, None] + 0.5 * factor[:, None] * rng.normal(size=(n, 2)), patient
        away = np.sqrt(0.6) * rng.normal(size=groups)[patient] + np.sqrt(0.4) * rng.normal(size=n)
        return np.column_stack([base, base + 0.2 + 0.4 * factor * away]), patient

    def scores(self, odds: np.ndarray) -> np.ndarray:
        return np.asarray(expit(odds)) if self.probability else odds


def repeatability(row: Repeated, k: int) -> Outcome:
    """Repeatability coefficient, ICC, flips, and of changes bias and limits of agreement."""
    odds, patient = row.draw(np.random.default_rng([0, k]), row.cohort.images)
    scores = row.scores(odds)
    if row.kind == "repeats":
        found = unordered_repeats(scores.ravel(), np.arange(len(scores)).repeat(2), patient.repeat(2))
    else:
        found = paired_repeats(scores[:, 0], scores[:, 1], patient)
    values = {name: getattr(found, name) for name in _truth(row) if name != "flips"}
    values["flips"] = flip_rate(_flips(odds), patient)
    return {name: interval(values[name], truth) for name, truth in _truth(row).items()}


def _flips(odds: np.ndarray) -> np.ndarray:
    return np.asarray((odds[:, 0] >= 0) != (odds[:, 1] >= 0))


@cache
def _truth(row: Repeated) -> dict[str, float]:
    odds, _ = row.draw(np.random.default_rng(1), (2 if row.kind == "repeats" else 1,) * 4_000_000)
    x, y = row.scores(odds).T
    d = y - x
    error = float((d**2).mean()) / 2
    true = {"coefficient": LIMIT * np.sqrt(2 * error), "flips": float(_flips(odds).mean())}
    if row.kind == "repeats":
        return true | {"icc": 1 - error / float(np.concatenate([x, y]).var())}
    limits = {side: float(d.mean() + sign * LIMIT * d.std()) for side, sign in (("lower", -1), ("upper", 1))}
    total = (float(x.var() + y.var()) + float(d.mean()) ** 2) / 2
    return true | {"icc": 1 - error / total, "bias": float(d.mean())} | limits


def _rows(kind: Literal["repeats", "changes"]) -> tuple[Repeated, ...]:
    of_cohorts = ((cohort, uneven) for cohort in (COHORTS[1], COHORTS[0], COHORTS[4]) for uneven in (0.0, 0.3))
    return tuple(Repeated(kind, *of, probability) for of in of_cohorts for probability in (False, True))


TABLES = {"repeats": Table(_rows("repeats"), repeatability), "changes": Table(_rows("changes"), repeatability)}
