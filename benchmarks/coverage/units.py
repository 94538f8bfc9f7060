"""Figures and thresholds of patients, pooled from the scores of 1 to 20 views, beside thresholds of single images.

Scores are drawn as in ``thresholds``. The true figures of a threshold are those of 4,000 other patients.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit

from benchmarks.coverage.generators import INFORMATIVE, uneven_patients
from benchmarks.coverage.harness import Outcome, Row, Spread, Table, interval
from benchmarks.coverage.thresholds import RESAMPLES, SHARE, D, Procedure
from usvit.config.evaluation import UnitSettings
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.threshold_procedure import draw_procedure, procedure_from_folds, procedure_of, why_no_bootstrap
from usvit.evaluation.thresholds import choosing_rows, operating_points
from usvit.evaluation.units import units_of
from usvit.metrics.basic import auc
from usvit.metrics.bootstrap import FigureValues
from usvit.metrics.proportions import clustered_share
from usvit.metrics.threshold_choice import Rule, outcome

TARGET = Rule("sensitivity", 0.9)


@dataclass(frozen=True)
class Views(Row):
    """Patients, views of each (none stands for 1 to 20), pooling, SD of the shift of folds, and informative sizes."""

    patients: int
    images: int | None
    pooling: str = "mean"
    shift: float = 0.5
    informative: bool = False


@cache
def _others(images: int | None, informative: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores of the views of other patients, the highest of each first; their numbers; who is positive."""
    rng, n = np.random.default_rng(7), 4_000
    ill = np.arange(n) < round(SHARE * n)
    if images:
        sizes, away = np.full(n, images), rng.normal(size=n)
    else:
        sizes, away = uneven_patients(rng, n, informative=INFORMATIVE * informative)
        away = np.where(ill, -away, away)
    patient = np.repeat(np.arange(n), sizes)
    score = D * ill[patient] + np.sqrt(0.35) * away[patient] + np.sqrt(0.65) * rng.normal(size=len(patient))
    return score[np.lexsort((-score, patient))], sizes, ill


def _pooled(prob: np.ndarray, sizes: np.ndarray, pooling: str) -> np.ndarray:
    start = np.cumsum(sizes) - sizes
    if pooling == "noisy-or":
        return np.asarray(1 - np.multiply.reduceat(1 - prob, start))
    most = {"mean": sizes.max(), "max": 1, "top-3": 3}[pooling]
    rank = np.arange(len(prob)) - np.repeat(start, sizes)
    return np.asarray(np.add.reduceat(np.where(rank < most, prob, 0.0), start) / np.minimum(sizes, most))


def patients(row: Views, k: int) -> Outcome:
    """The AUC of patients, and sensitivity and specificity at thresholds for a sensitivity of 0.90."""
    rng = np.random.default_rng([k, 11])
    images, shifts = Procedure(TARGET, row.patients, row.images, row.shift, row.informative).draw(rng)
    images = images.assign(patient_id=images["group_id"])
    settings = UnitSettings(unit="patient", pooling=row.pooling)
    units, _ = units_of(images, settings, "malignant")
    score, sizes, ill = _others(row.images, row.informative)
    probs = [_pooled(expit(shift + score), sizes, row.pooling) for shift in shifts]
    found: dict[str, object] = {}
    headline = headline_section(units, "malignant", FigureValues())
    found["AUC"] = interval(headline.auc, np.mean([auc(ill, prob) for prob in probs]))
    test, chooser = rows_of(units, "test"), choosing_rows(units)[1]
    positive = test.index("malignant")
    for name, rows in (("own", units), ("image", images)):
        [point] = operating_points(rows, positive="malignant", rules=[TARGET])
        limits = {fold.fold: fold.threshold for fold in point.folds}
        if None in limits.values():
            continue
        called = [prob >= limits[fold] for fold, prob in enumerate(probs)]
        sensitivity = np.mean([one[ill].mean() for one in called])
        specificity = np.mean([(~one[~ill]).mean() for one in called])
        found |= {f"sensitivity, {name} threshold": Spread(sensitivity)}
        found |= {f"specificity, {name} threshold": Spread(specificity)}
        if name == "own":
            decided = test.prob[:, positive] >= np.array([limits[int(fold)] for fold in test.fold])
            pooled = outcome(test.label == positive, decided, test.group, interval=clustered_share)
            if why := why_no_bootstrap(TARGET, chooser, positive):
                measured = procedure_from_folds(TARGET, why, pooled, test, decided, chooser, positive)
            else:
                drawn = draw_procedure(test, chooser, positive, [TARGET], n_resamples=RESAMPLES)
                measured = procedure_of(pooled, drawn[:, 0])
            for how, of in (("", measured), (", given thresholds", pooled)):
                found |= {f"sensitivity{how}": interval(of.sensitivity, sensitivity)}
                found |= {f"specificity{how}": interval(of.specificity, specificity)}
    return found  # type: ignore[return-value]


TABLES = {
    "units": Table(
        (
            Views(301, 2),
            Views(301, None),
            Views(301, None, shift=1.0, informative=True),
            Views(301, None, "max"),
            Views(301, None, "top-3"),
            Views(301, None, "noisy-or"),
            Views(301, 1),
            Views(1201, 2),
        ),
        patients,
        500,
    )
}
