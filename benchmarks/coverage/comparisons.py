"""Comparisons of two equal ways of training, with models trained in folds by three learners of scikit-learn.

Both procedures train the same learner, each with one informative feature and its own half of the noise features. A test
at 5 % may reject in 5 % of the studies. "Given" is McNemar's test of the same decisions, which takes models and
thresholds as given.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks.coverage.generators import INFORMATIVE, uneven_patients
from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval, rejects
from benchmarks.coverage.trained import CORRELATION, FOLDS, INNER, folds, share_of
from usvit.estimate import Estimate
from usvit.evaluation.comparison import fold_ratio
from usvit.evaluation.decision_comparison import compare_accuracy, compare_decisions
from usvit.evaluation.decisions import MOST_PROBABLE, Decided
from usvit.evaluation.prediction_arrays import Rows
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.fold_figures import FoldFigure, area_figure
from usvit.metrics.paired_tests import corrected_t, paired_difference
from usvit.metrics.threshold_choice import Rule, choose_threshold

RULES = (Rule("sensitivity", 0.9), Rule("specificity", 0.9), Rule("youden"))

LEARNERS: dict[str, Callable[[int], Any]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=500),
    "perceptron": lambda seed: MLPClassifier((8,), learning_rate_init=0.02, max_iter=20, random_state=seed),
    "boosted trees": lambda seed: GradientBoostingClassifier(
        n_estimators=15, max_depth=2, subsample=0.7, max_features=4, random_state=seed
    ),
}


@dataclass(frozen=True)
class Comparison(Row):
    """Patients, how many of them are positive, and the distance of the classes in the informative feature."""

    learner: str
    patients: int
    positives: int
    distance: float = 1.5
    uneven: bool = False
    informative: bool = False
    noise_features: int = 19
    """Of each procedure."""
    a_better_by: float = 0.0
    """Distance of the classes in a second informative feature, which only procedure A gets; 0 for equal procedures."""

    def means(self) -> np.ndarray:
        """Return the distances of the classes in all features."""
        return np.r_[self.distance, self.a_better_by, np.zeros(2 * self.noise_features)]

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
        """Draw features (n, p), labels of the patients, patients (n,), and the features of both procedures."""
        images, deviation = np.ones(self.patients, int), None
        if self.uneven:
            images, deviation = uneven_patients(rng, self.patients, informative=INFORMATIVE * self.informative)
        else:
            deviation = rng.normal(size=self.patients)
        patient = np.repeat(np.arange(self.patients), images)
        positive = np.arange(self.patients) < self.positives
        mu = self.means()
        own = rng.normal(size=(self.patients, len(mu)))
        own[:, 0] = deviation
        x = np.sqrt(CORRELATION) * own[patient] + np.sqrt(1 - CORRELATION) * rng.normal(size=(len(patient), len(mu)))
        halves = np.split(np.arange(2, len(mu)), 2)
        a = np.r_[[0], [1] * (self.a_better_by > 0), halves[0]].astype(int)
        return x + positive[patient][:, None] * mu, positive, patient, [a, np.r_[0, halves[1]]]


def comparison(row: Comparison, k: int) -> Outcome:
    """Share of p < 0.05 of the headline and of decisions; a rule without a threshold in some fold is left out."""
    rng = np.random.default_rng([k, 3])
    x, positive, patient, both = row.draw(rng)
    y, fold_of = positive[patient], np.zeros(row.patients, int)
    areas: tuple[list[FoldFigure | None], list[FoldFigure | None]] = ([], [])
    rows, truths, share = [], list[float](), np.zeros((2, len(y)))
    called: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, len(y)), bool))
    missing: set[str] = set()
    for fold in folds(rng, positive):
        fold_of[fold.test] = fold.number
        inner, test, unseen = (of[patient] for of in (fold.inner, fold.test, fold.unseen))
        scores, true = [], list[float]()
        for j, (own, into) in enumerate(zip(both, areas, strict=True)):
            model = LEARNERS[row.learner](int(rng.integers(1 << 30))).fit(x[~unseen][:, own], y[~unseen])
            score = np.zeros(len(y))
            score[unseen] = model.predict_proba(x[unseen][:, own])[:, 1]
            share[j, test] = score[test]
            if row.learner == "logistic":  # the AUC of a direction is known in closed form
                w = model.coef_[0]
                true.append(norm.cdf(w @ row.means()[own] / (np.sqrt(2) * np.linalg.norm(w))))
            scores.append(score[unseen])
            into.append(area_figure(y[test], score[test], patient[test], row.patients))
            called[MOST_PROBABLE][j, test] = score[test] > 0.5
            for rule in RULES:
                threshold = choose_threshold(y[inner], score[inner], rule).threshold if inner.any() else None
                if threshold is None:
                    missing.add(rule.name)
                else:
                    called[rule.name][j, test] = score[test] >= threshold
        if true:
            truths.append(true[0] - true[1])
        rows.append((y[unseen], *scores, patient[unseen], np.full(unseen.sum(), fold.number)))
    found = difference_within_folds(
        [areas[0]], [areas[1]], share_of(rows, row.patients).value, absent="", n_groups=row.patients
    )
    gaps = [a.value - b.value for a, b in zip(*areas, strict=True) if a is not None and b is not None]
    outcome: dict[str, Interval | float] = {
        "headline": rejects(found),
        "pooled": rejects(clustered_difference(y, share[0], share[1], patient)),
        "t of folds": rejects(corrected_t(gaps, (1 / FOLDS) / ((1 - 1 / FOLDS) * (1 - INNER)))),
    }
    if truths:
        outcome["difference of these models"] = interval(found, np.mean(truths))
    decided = []
    for own, prob in zip(np.moveaxis(np.stack(list(called.values())), 1, 0), share, strict=True):
        made = {name: calls for name, calls in zip(called, own, strict=True) if name not in missing}
        both_classes = np.column_stack([1 - prob, prob])
        label, repeat = y.astype(int), np.zeros(len(y), int)
        table = Rows(("benign", "malignant"), label, both_classes, both_classes, patient, fold_of[patient], repeat)
        decided.append(Decided(table, "malignant", made, {}))
    return outcome | _decisions(*decided)


def _decisions(a: Decided, b: Decided) -> dict[str, Interval | float]:
    """Test accuracy, sensitivity and specificity fold by fold, and with models and thresholds taken as given."""
    ratio = fold_ratio(a.rows.fold, len(a.reference)) / (1 - INNER)

    def given(rule: str, at: np.ndarray) -> Estimate:
        right = [(run.called[rule] == run.reference)[at] for run in (a, b)]
        return paired_difference(right[0], right[1], a.rows.group[at], of="images")

    found: dict[str, Interval | float] = {"accuracy": rejects(compare_accuracy([a], [b], ratio))}
    found["accuracy, given"] = rejects(given(MOST_PROBABLE, np.ones(len(a.reference), bool)))
    for entry in compare_decisions([a], [b], ratio):
        for name, at in (("sensitivity", a.reference), ("specificity", ~a.reference)):
            found[f"{entry.rule}: {name}"] = rejects(getattr(entry, name))
            found[f"{entry.rule}: {name}, given"] = rejects(given(entry.rule, at))
    return found


UNEVEN: tuple[tuple[float, bool], ...] = ((0.0, False), (1.5, False), (1.5, True))
TABLES = {
    "comparisons": Table(
        (
            Comparison("logistic", 80, 24, noise_features=9),
            Comparison("logistic", 80, 9, noise_features=9),
            Comparison("logistic", 240, 72),
            Comparison("logistic", 780, 234, 0.0),
            Comparison("logistic", 780, 234),
            Comparison("logistic", 11, 5, uneven=True, noise_features=4),
            Comparison("logistic", 23, 7, uneven=True, noise_features=9),
            Comparison("logistic", 74, 9, uneven=True),
            *(Comparison("logistic", 74, 22, distance, True, informative) for distance, informative in UNEVEN),
            Comparison("logistic", 240, 72, 1.2, noise_features=9, a_better_by=1.2),
            Comparison("logistic", 780, 234, 1.2, noise_features=9, a_better_by=0.8),
            Comparison("perceptron", 240, 72),
            *(Comparison("perceptron", 74, 22, distance, True) for distance in (0.0, 1.5)),
            Comparison("boosted trees", 240, 72),
            *(Comparison("boosted trees", 74, 22, distance, True, informative) for distance, informative in UNEVEN),
        ),
        comparison,
        300,
    ),
}
