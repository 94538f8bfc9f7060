"""Tables of models that are trained in five stratified folds of patients, with inner validation patients.

The features are normally distributed. One of them differs between the classes; the others are noise, which the models
overfit. With several images of a patient, their features have a correlation of 0.5.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit
from scipy.stats import norm, rankdata

from benchmarks.coverage.generators import INFORMATIVE, uneven_patients
from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval
from usvit.config.evaluation import UnitSettings
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.units import units_of
from usvit.metrics.bootstrap import FigureValues
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.cross_validation import fold_mean, mean_value
from usvit.metrics.fold_figures import FoldFigure, area_figure, mean_figure
from usvit.metrics.training_share import training_share
from usvit.records import TrainingShareRecord

PREVALENCE, FOLDS, CORRELATION = 0.3, 5, 0.5
INNER = 0.1
"""Share of the training patients that are kept for inner validation."""
SHIFTED = 0.5
"""Shift of all scores of a fold, in SDs of all scores, as if the folds' models were calibrated differently."""
FIGURES = ("AUC", "accuracy", "balanced accuracy", "sensitivity", "specificity")
Scores = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Fold:
    """The (patients,) test and inner validation patients of one model, and its repeat."""

    number: int
    repeat: int
    test: np.ndarray
    inner: np.ndarray

    @property
    def unseen(self) -> np.ndarray:
        return self.test | self.inner


def folds(rng: np.random.Generator, positive: np.ndarray, repeats: int = 1, inner: float = INNER) -> Iterator[Fold]:
    """Draw folds of patients, stratified by label; the inner patients of a fold are drawn when it is reached."""

    def permuted(among: np.ndarray) -> list[np.ndarray]:
        return [rng.permutation(np.flatnonzero(among & (positive == label))) for label in (True, False)]

    for repeat in range(repeats):
        fold = np.empty(len(positive), int)
        fold[np.concatenate(permuted(np.ones(len(positive), bool)))] = np.arange(len(positive)) % FOLDS
        for k in range(FOLDS):
            chosen = np.zeros(len(positive), bool)
            for at in permuted(fold != k):
                chosen[at[: round(inner * len(at))]] = True
            yield Fold(repeat * FOLDS + k, repeat, fold == k, chosen)


class Headline:
    """The figures of the folds of one cross-validation, and the scores of the images that a model has not seen."""

    def __init__(self, y: np.ndarray, patient: np.ndarray, repeats: int = 1) -> None:
        self.y, self.patient, self.n = y, patient, int(patient.max()) + 1
        self.figures: dict[str, list[list[FoldFigure | None]]] = {n: [[] for _ in range(repeats)] for n in FIGURES}
        self.rows: list[tuple[np.ndarray, ...]] = []

    def add(self, fold: Fold, score: np.ndarray) -> None:
        """Add the scores of one model; above 0 an image is called positive."""
        at, unseen = fold.test[self.patient], fold.unseen[self.patient]
        y, patient, right = self.y[at], self.patient[at], ((score > 0) == self.y)[at].astype(float)
        up, down = (mean_figure(right, of, patient, self.n, name) for name, of in (("up", y), ("down", ~y)))
        both = None if up is None or down is None else FoldFigure.mean([up, down])
        accuracy = mean_figure(right, np.ones(len(y), bool), patient, self.n)
        area = area_figure(y, score[at], patient, self.n)
        for name, figure in zip(FIGURES, (area, accuracy, both, up, down), strict=True):
            self.figures[name][fold.repeat].append(figure)
        self.rows.append((self.y[unseen], score[unseen], self.patient[unseen], np.full(unseen.sum(), fold.number)))

    def intervals(self, truths: Sequence[Sequence[float]]) -> dict[str, Interval | float]:
        """Return the headline figures beside the mean true figures of the (models, figures) models."""
        share = share_of(self.rows, self.n).value
        return {
            name: interval(mean_value(fold_mean(self.figures[name]), share, absent="", n_groups=self.n), truth)
            for name, truth in zip(FIGURES, np.mean(truths, axis=0), strict=True)
        } | {"training share": share}


def share_of(rows: Sequence[tuple[np.ndarray, ...]], groups: int) -> TrainingShareRecord:
    """Estimate the training share from (positive, one or two scores, group, fold) of each model."""
    positive, *scores, group, fold = (np.concatenate(one) for one in zip(*rows, strict=True))
    return training_share(positive, scores, group, fold, groups)


def features(
    rng: np.random.Generator, groups: int, mu: np.ndarray, images: int | np.ndarray = 1
) -> tuple[np.ndarray, ...]:
    """Draw features (n, p) of variance 1, labels (n,), patients (n,) and the labels of the patients."""
    positive, several = np.arange(groups) < round(PREVALENCE * groups), np.max(images) > 1
    patient = np.repeat(np.arange(groups), images)
    x = rng.normal(size=(len(patient), len(mu)))
    if several:
        x = np.sqrt(CORRELATION) * rng.normal(size=(groups, len(mu)))[patient] + np.sqrt(1 - CORRELATION) * x
    return x + positive[patient][:, None] * mu, positive[patient], patient, positive


def discriminant(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a linear discriminant with a small ridge on the covariance; return its weights and its midpoint."""
    up, down = x[y].mean(axis=0), x[~y].mean(axis=0)
    rest = np.where(y[:, None], x - up, x - down)
    covariance = rest.T @ rest / (len(y) - 2) + 0.1 * np.eye(x.shape[1])
    w = np.linalg.solve(covariance, up - down)
    return w, float(w @ (up + down) / 2)


@dataclass(frozen=True)
class Linear(Row):
    """Linear discriminants; ``distance`` is that of the classes' means in the informative feature, in SDs."""

    n: int
    distance: float
    features: int = 20
    images: int = 1
    repeats: int = 1
    inner: float = INNER
    seeds_differ_by: float = 0.0
    """SD of noise on the weights, relative to their length; it simulates different random seeds."""
    thresholds_moved_by: float = 0.0
    """SD of a random number that moves the threshold of a model, in SDs of the scores within a class."""


def headline(row: Linear, k: int) -> Outcome:
    """Headline figures of linear discriminants, whose true figures are known in closed form; the pooled AUC.

    The true AUC of a direction w is Phi(w . mu / (sqrt 2 |w|)), for images of different patients. "Folds shifted" adds
    a random number with half the SD of the scores to the scores of each model.
    """
    rng, mu = np.random.default_rng([k, 1]), np.r_[row.distance, np.zeros(row.features - 1)]
    x, y, patient, positive = features(rng, row.n // row.images, mu, row.images)
    found, truths, pooled = Headline(y, patient, row.repeats), [], np.zeros((2, row.n))
    for fold in folds(rng, positive, row.repeats, row.inner):
        at, seen = fold.test[patient], ~fold.unseen[patient]
        w, middle = discriminant(x[seen], y[seen])
        w = w + row.seeds_differ_by * np.linalg.norm(w) * rng.normal(size=len(w)) / np.sqrt(len(w))
        length = np.linalg.norm(w)
        middle -= logit(PREVALENCE)
        if row.thresholds_moved_by:
            middle += row.thresholds_moved_by * length * rng.normal()
        score = x @ w - middle
        found.add(fold, score)
        true = norm.cdf(np.array([w @ mu - middle, middle]) / length)
        area = norm.cdf(w @ mu / (np.sqrt(2) * length))
        truths.append([area, PREVALENCE * true[0] + (1 - PREVALENCE) * true[1], true.mean(), *true])
        if not fold.repeat:
            pooled[:, at] = score[at], score[at] + SHIFTED * score.std() * rng.normal()
    truth = float(np.mean(truths, axis=0)[0])
    names = zip(("pooled AUC", "pooled AUC, folds shifted"), pooled, strict=True)
    return {name: interval(clustered_auc(y, own, patient), truth) for name, own in names} | found.intervals(truths)


@dataclass(frozen=True)
class Learned(Row):
    """A learner, patients of both classes, and the distance of the classes; uneven: 1 to 20 images, informative."""

    learner: str
    positives: int
    negatives: int
    distance: float = 1.5
    repeats: int = 1
    uneven_informative: bool = False

    def draw(self, rng: np.random.Generator, positive: np.ndarray) -> tuple[np.ndarray, ...]:
        """Draw (n, 10) features, labels and patients of patients with these labels."""
        n = len(positive)
        images, own = np.ones(n, int), rng.normal(size=n)
        if self.uneven_informative:
            images, own = uneven_patients(rng, n, informative=INFORMATIVE)
        patient = np.repeat(np.arange(n), images)
        of_patient = rng.normal(size=(n, 10))
        of_patient[:, 0] = np.where(positive, -own, own)  # difficult patients have more images
        x = of_patient[patient]
        if self.uneven_informative:
            x = np.sqrt(0.5) * x + np.sqrt(0.5) * rng.normal(size=x.shape)
        x[:, 0] += self.distance * positive[patient]
        return x, positive[patient], patient


def small_classes(row: Learned, k: int) -> Outcome:
    """Headline figures of three learners with small classes and uneven patients; true values on 3,000 new patients."""
    rng = np.random.default_rng([k, row.positives, 5])
    positive = np.arange(row.positives + row.negatives) < row.positives
    x, y, patient = row.draw(rng, positive)
    new_x, new_y, _ = row.draw(rng, np.arange(3000) < 1500)
    found, truths = Headline(y, patient, row.repeats), []
    for fold in folds(rng, positive, row.repeats):
        seen = ~fold.unseen[patient]
        score = LEARNERS[row.learner](x[seen], y[seen], 100 * k + fold.number)
        found.add(fold, score(x))
        new = score(new_x)
        up, down = (new > 0)[new_y].mean(), (new <= 0)[~new_y].mean()
        truths.append([area_of(new_y, new), y.mean() * up + (1 - y.mean()) * down, (up + down) / 2, up, down])
    return found.intervals(truths)


def logistic(x: np.ndarray, y: np.ndarray, seed: int) -> Scores:
    from sklearn.linear_model import LogisticRegression

    scores: Scores = LogisticRegression(class_weight="balanced", random_state=seed).fit(x, y).decision_function
    return scores


def mlp(x: np.ndarray, y: np.ndarray, seed: int) -> Scores:
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier((8,), alpha=1.0, max_iter=60, solver="lbfgs", random_state=seed).fit(x, y)
    return lambda new: model.predict_proba(new)[:, 1] - 0.5


def boosted(x: np.ndarray, y: np.ndarray, seed: int) -> Scores:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=4, min_samples_leaf=5, random_state=seed)
    model.fit(x, y)
    return lambda new: model.predict_proba(new)[:, 1] - 0.5


LEARNERS = {"logistic": logistic, "mlp": mlp, "boosted trees": boosted}


@dataclass(frozen=True)
class ByPatient(Row):
    """Patients, whether they have 1 to 7 images instead of 4, and the shift of the folds in SDs of the scores."""

    n: int
    uneven: bool = False
    folds_shifted_by: float = 0.0


def by_patient(row: ByPatient, k: int) -> Outcome:
    """The AUC of the patients' mean or highest probability, whose true value is that of 40,000 other patients."""
    rng = np.random.default_rng([k, 3])
    x, y, patient, positive = _several_images(rng, row.n, row.uneven)
    other_x, _, other_patient, other_positive = _others(row.uneven)
    tables = []
    truths: dict[str, list[float]] = {"mean": [], "max": []}
    for fold in folds(rng, positive):
        seen = ~fold.unseen[patient]
        w, middle = discriminant(x[seen], y[seen])
        middle -= logit(PREVALENCE) + row.folds_shifted_by * (x @ w).std() * rng.normal()
        prob = expit(x @ w - middle)
        for part, own in (("test", fold.test), ("val", fold.inner)):
            at = np.flatnonzero(own[patient])
            name = np.char.add("p", patient[at].astype(str))
            columns: dict[str, Any] = {"image_id": at.astype(str), "group_id": name, "patient_id": name, "part": part}
            columns |= {"label": np.where(y[at], "yes", "no"), "prob_no": 1 - prob[at], "prob_yes": prob[at]}
            tables.append(pd.DataFrame(columns | {"dataset": "simulated", "fold": fold.number}))
        elsewhere = expit(other_x @ w - middle)
        of_patient = {
            "mean": np.bincount(other_patient, elsewhere) / np.bincount(other_patient),
            "max": np.maximum.reduceat(elsewhere, np.flatnonzero(np.r_[True, np.diff(other_patient) > 0])),
        }
        for how, truth in truths.items():
            truth.append(area_of(other_positive, of_patient[how]))
    table, outcome = pd.concat(tables, ignore_index=True), dict[str, Interval | float]()
    for how, truth in truths.items():
        of_patients, _ = units_of(table, UnitSettings(unit="patient", pooling=how), "yes")
        rows, section = rows_of(of_patients, "test"), headline_section(of_patients, "yes", FigureValues())
        yes = rows.index("yes")
        pooled = clustered_auc(rows.label == yes, rows.prob[:, yes], rows.group)
        outcome[f"{how}: pooled"] = interval(pooled, np.mean(truth))
        outcome[f"{how}: headline"] = interval(section.auc, np.mean(truth))
        if section.training_share is not None:
            outcome[f"{how}: training share"] = section.training_share.value
    return outcome


def _several_images(rng: np.random.Generator, n: int, uneven: bool) -> tuple[np.ndarray, ...]:
    return features(rng, n, np.r_[1.5, np.zeros(19)], rng.integers(1, 8, n) if uneven else 4)


@cache
def _others(uneven: bool) -> tuple[np.ndarray, ...]:
    return _several_images(np.random.default_rng(7), 40_000, uneven)


def area_of(positive: np.ndarray, score: np.ndarray) -> float:
    """Return the AUC from ranks, which is faster than a curve."""
    up = int(positive.sum())
    return float((rankdata(score)[positive].sum() - up * (up + 1) / 2) / (up * (len(score) - up)))


TABLES = {
    "headline": Table(
        (
            *(Linear(n, distance) for n in (150, 240, 480, 780) for distance in (0.0, 1.5)),
            Linear(240, 1.5, features=50),
            Linear(780, 2.5, features=50),
            Linear(480, 0.0, images=4),
            Linear(480, 1.5, images=4),
            Linear(240, 1.5, seeds_differ_by=0.5),
            Linear(240, 0.0, inner=0.0),
            Linear(240, 1.5, inner=0.0),
            *(Linear(240, distance, repeats=repeats) for repeats in (3, 5) for distance in (0.0, 1.5)),
            Linear(240, 1.5, repeats=3, inner=0.0),
            *(Linear(n, 1.5, thresholds_moved_by=moved) for n in (240, 780) for moved in (0.5, 1.0, 2.0)),
        ),
        headline,
    ),
    "small-classes": Table(
        tuple(
            Learned(learner, *patients)
            for learner in LEARNERS
            for patients in (
                (9, 91),
                (12, 388),
                (12, 388, 1.5, 3),
                (39, 361, 2.5),
                (39, 361, 1.5, 3),
                (13, 27, 1.5, 1, True),
                (22, 52, 1.5, 1, True),
                (22, 52, 1.5, 3, True),
            )
        ),
        small_classes,
        200,
    ),
    "patients": Table(
        tuple(ByPatient(n, uneven, shift) for n in (240, 480) for uneven in (False, True) for shift in (0.0, SHIFTED)),
        by_patient,
    ),
}
