"""A model beside readers: coverage of intervals about BI-RADS categories, with 1 to 20 images a patient.

The suspicion of readers and the score of the model share the deviation of a patient. Thresholds at a reader's point are
chosen on as many inner validation images per fold as there are test images, as by ``usvit compare --readers``.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.coverage.generators import INFORMATIVE, uneven_patients
from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval, rejects
from usvit.estimate import Difference
from usvit.evaluation.decision_comparison import decision_difference
from usvit.evaluation.readers_decisions import INNER, ReadRepeat
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.combined_rules import BiopsyChange, combined_biopsies, per_thousand
from usvit.metrics.proportions import clustered_share
from usvit.metrics.reader_areas import difference_to_mean, mean_auc

LIMITS = (-0.5, 0.3, 0.9, 1.5, 2.1)
"""Between the categories 2, 3, 4a, 4b, 4c and 5, as deviates of a benign image."""
BIOPSY, DOUBTFUL, FOLLOWED = 2, (1, 2, 3), (0, 1)
THRESHOLD = 0.3
SKILL, PATIENT, SHARED = 1.6, 0.5, 0.5
FOLDS = 5


@dataclass(frozen=True)
class Readers(Row):
    """Patients, how many of them are expected to be positive, and whether difficult ones were imaged more often."""

    patients: int
    positives: int
    informative: bool = False
    model: float = SKILL
    """Distance of the classes in the model's score."""

    def __str__(self) -> str:
        return (
            f"{self.patients:,} patients x 1 to 20, {self.positives} positive{', informative' * self.informative}"
            f"{', a better model' * (self.model > SKILL)}"
        )

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]:
        """Draw labels, patients, two readers' categories and the model's scores of n images."""
        images, deviation = uneven_patients(rng, self.patients, informative=INFORMATIVE * self.informative)
        patient = np.repeat(np.arange(self.patients), images)
        cancer = (rng.random(self.patients) < self.positives / self.patients)[patient]
        n, own = len(patient), np.sqrt(PATIENT) * deviation[patient]
        image = rng.normal(size=n)

        def score(skill: float) -> np.ndarray:
            noise = np.sqrt(SHARED) * image + np.sqrt(1 - SHARED) * rng.normal(size=n)
            return skill * cancer + own + np.sqrt(1 - PATIENT) * noise

        return cancer, patient, [np.digitize(score(SKILL), LIMITS) for _ in range(2)], score(self.model)


@cache
def truths(row: Readers) -> dict[str, float]:
    """Compute the true figures from a million images or so."""
    big = Readers(60_000, round(60_000 * row.positives / row.patients), row.informative, row.model)
    cancer, patient, readers, score = big.draw(np.random.default_rng(10**9))
    group = np.arange(len(cancer))
    return {
        "mean AUC": mean_auc(cancer, [one.astype(float) for one in readers], group).value or 0.0,
        "difference": difference_to_mean(cancer, score, [one.astype(float) for one in readers], group).value or 0.0,
        **{name: float(hits.mean()) for name, (hits, _) in _shares(cancer, patient, readers[0], score).items()},
        "matched": _true_matched(cancer, readers[0], score),
    }


def _true_matched(cancer: np.ndarray, reader: np.ndarray, score: np.ndarray) -> float:
    specificity = float((reader[~cancer] < BIOPSY).mean())
    threshold = np.quantile(score[~cancer], specificity)
    return float((score[cancer] >= threshold).mean() - (reader[cancer] >= BIOPSY).mean())


def _shares(
    cancer: np.ndarray, patient: np.ndarray, reader: np.ndarray, score: np.ndarray
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return hits and groups of some shares of the rule "both"."""
    alone = reader >= BIOPSY
    after = combined_biopsies(alone, np.isin(reader, DOUBTFUL), np.isin(reader, FOLLOWED), score >= THRESHOLD, "both")
    change = BiopsyChange.of(cancer, alone, after)
    return {
        "avoided": (change.avoided, patient),
        "missed": (change.missed, patient),
        "PPV": (cancer[after], patient[after]),
    }


def readers(row: Readers, k: int) -> Outcome:
    """Coverage: mean AUC of two readers, model minus mean, avoided and missed biopsies, PPV, matched sensitivity."""
    rng, truth = np.random.default_rng([k, 77]), truths(row)
    cancer, patient, both, score = row.draw(rng)
    levels = [one.astype(float) for one in both]
    difference = difference_to_mean(cancer, score, levels, patient)
    found: dict[str, Interval | float] = {
        "AUC, one reader": interval(clustered_auc(cancer, levels[0], patient), truth["mean AUC"]),
        "AUC, mean of two": interval(mean_auc(cancer, levels, patient), truth["mean AUC"]),
        "model minus mean": interval(difference, truth["difference"]),
    }
    for name, (hits, group) in _shares(cancer, patient, both[0], score).items():
        if name == "PPV":
            found[name] = interval(clustered_share(hits, group), truth[name])
        else:
            found[f"{name} per 1,000"] = interval(per_thousand(hits, group), 1000 * truth[name])
    matched = _matched(cancer, patient, both[0], score, rng)
    if matched is not None:
        found["sensitivity at matched specificity"] = interval(matched, truth["matched"])
        found["p < 0.05 of it"] = float(rejects(matched))
    return found


def _matched(
    cancer: np.ndarray, patient: np.ndarray, reader: np.ndarray, score: np.ndarray, rng: np.random.Generator
) -> Difference | None:
    """Compute the difference of sensitivities at the cut 4a as ``usvit compare --readers`` does; None without one."""
    fold_of = np.empty(patient.max() + 1, dtype=np.int64)
    is_positive = np.bincount(patient, cancer) > 0
    for own in (is_positive, ~is_positive):
        fold_of[own] = rng.permutation(np.arange(own.sum()) % FOLDS)
    prob = 1 / (1 + np.exp(-score))
    tables, levels = [], []
    for fold in range(FOLDS):
        for part, which in (("test", fold), ("val", (fold + 1) % FOLDS)):
            at = np.flatnonzero(fold_of[patient] == which)
            table = pd.DataFrame({"image_id": at.astype(str), "group_id": patient[at].astype(str)})
            table = table.assign(patient_id=None, dataset="d", fold=fold, part=part)
            table["label"] = np.where(cancer[at], "malignant", "benign")
            tables.append(table.assign(prob_benign=1 - prob[at], prob_malignant=prob[at]))
            levels.append(reader[at])
    level = np.concatenate(levels)[None]
    (repeat,) = ReadRepeat.all_of(pd.concat(tables, ignore_index=True), level, "malignant", ["benign", "malignant"])
    images = repeat.of_readers([0])
    called = images.matched(BIOPSY, "specificity", INNER)
    if isinstance(called, str):
        return None
    model, reads = images.decided(called, "rule"), images.decided(images.level >= BIOPSY, "rule")
    return decision_difference([model], [reads], "sensitivity", "rule", 1 / (FOLDS - 1))


TABLES = {
    "readers": Table(
        [
            Readers(400, 120),
            Readers(400, 120, informative=True),
            Readers(74, 22),
            Readers(74, 22, informative=True),
            Readers(400, 120, model=2.2),
        ],
        readers,
        200,
    )
}
