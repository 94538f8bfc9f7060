"""Measure how often comparisons of two equal ways of training find a difference, with models trained in folds.

    python -m benchmarks.coverage_comparisons                              # the tables of docs/explanation/intervals.md
    python -m benchmarks.coverage_comparisons --learner logistic --repetitions 50

Two procedures are equal: both train the same learner, each with one informative feature and its own half of the noise
features. A test at 5 % may reject in 5 % of the studies. The learners are logistic regression, a multilayer perceptron
and gradient-boosted trees (scikit-learn). Patients have one image, or 1 to 20 images whose features have a correlation
of 0.5 (``benchmarks.uneven_patients``); in "informative" rows the number goes with the patient's deviation in the
informative feature. There are 5 folds of patients, stratified by label, and 10 % of the training patients are inner
validation images, which choose the thresholds (sensitivity >= 0.9, specificity >= 0.9, Youden's index).

"Given" is McNemar's test of the same decisions, which takes models and thresholds as given.
"""

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks.coverage_training import CORRELATION, FOLDS, deal, inner_part, share_of
from benchmarks.uneven_patients import INFORMATIVE, uneven_patients
from usvit.estimate import Estimate
from usvit.evaluation.comparison import fold_ratio
from usvit.evaluation.decision_comparison import compare_accuracy, compare_decisions
from usvit.evaluation.decisions import MOST_PROBABLE, Decided
from usvit.evaluation.prediction_arrays import Rows
from usvit.metrics.cross_validation import FoldFigure, area_figure
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.paired_tests import paired_difference
from usvit.metrics.threshold_choice import Rule, choose_threshold

CLASSES = ("benign", "malignant")
INNER = 0.1
"""Share of the training patients that choose the thresholds instead of training."""
RULES = (Rule("sensitivity", 0.9), Rule("specificity", 0.9), Rule("youden"))
FEWEST = 100
"""A rule that has a threshold in every fold in fewer studies is left out."""

LEARNERS: dict[str, Callable[[int], Any]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=500),
    "perceptron": lambda seed: MLPClassifier((8,), learning_rate_init=0.02, max_iter=20, random_state=seed),
    "boosted trees": lambda seed: GradientBoostingClassifier(
        n_estimators=15, max_depth=2, subsample=0.7, max_features=4, random_state=seed
    ),
}


@dataclass(frozen=True)
class Study:
    """One row: patients, how many of them are positive, and the distance of the classes in the informative feature."""

    patients: int
    positives: int
    distance: float
    uneven: bool = False
    informative: bool = False
    noise: int = 19
    """Noise features of each procedure."""
    better: float = 0.0
    """Distance of the classes in a second informative feature, which only procedure A gets; 0 for equal procedures."""

    @property
    def title(self) -> str:
        images = " x 1 to 20 images" if self.uneven else ""
        parts = [
            f"{self.patients} patients{images}, {self.positives} positive",
            "skill" if self.distance else "no skill",
        ]
        parts += ["informative numbers"] * self.informative + [f"A is better (distance {self.better:g})"] * (
            self.better > 0
        )
        return ", ".join(parts)


STUDIES = {
    "logistic": (
        Study(80, 24, 1.5, noise=9),
        Study(80, 9, 1.5, noise=9),
        Study(240, 72, 1.5),
        Study(780, 234, 0.0),
        Study(780, 234, 1.5),
        Study(11, 5, 1.5, uneven=True, noise=4),
        Study(23, 7, 1.5, uneven=True, noise=9),
        Study(74, 9, 1.5, uneven=True),
        Study(74, 22, 0.0, uneven=True),
        Study(74, 22, 1.5, uneven=True),
        Study(74, 22, 1.5, uneven=True, informative=True),
        Study(240, 72, 1.2, noise=9, better=1.2),
        Study(780, 234, 1.2, noise=9, better=0.8),
    ),
    "perceptron": (Study(240, 72, 1.5), Study(74, 22, 0.0, uneven=True), Study(74, 22, 1.5, uneven=True)),
    "boosted trees": (
        Study(240, 72, 1.5),
        Study(74, 22, 0.0, uneven=True),
        Study(74, 22, 1.5, uneven=True),
        Study(74, 22, 1.5, uneven=True, informative=True),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--learner", choices=list(LEARNERS), action="append")
    parser.add_argument("--row", type=int, action="append", help="numbers of rows of one learner, from 0")
    given = parser.parse_args()
    n, start = given.repetitions, time.perf_counter()
    warnings.filterwarnings("ignore")  # a perceptron is stopped early
    print(f"{n} studies a row; share with p < 0.05; Monte Carlo error {np.sqrt(0.05 * 0.95 / n):.3f} at 0.05\n")
    heads = ("learner", "study", "headline", "accuracy", "given", "most probable class", "given")
    print(f"| {' | '.join((*heads, 'chosen thresholds', 'given'))} |\n{'|---' * (len(heads) + 2)}|")
    for learner in given.learner or LEARNERS:
        rows = STUDIES[learner]
        for study in rows if given.row is None else [rows[number] for number in given.row]:
            print_row(learner, study, n)
    print(f"\n{time.perf_counter() - start:.0f} s")


def print_row(learner: str, study: Study, repetitions: int) -> None:
    """Print the shares of rejections; for chosen thresholds the lowest and highest of all rules and both figures."""
    found = defaultdict(list)
    for seed in range(repetitions):
        for name, value in one_study(learner, study, seed).items():
            found[name].append(value.p is not None and value.p < 0.05)
    rates = {name: np.mean(one) for name, one in found.items() if len(one) >= min(FEWEST, repetitions)}

    def span(test: str, rule: Callable[[str], bool]) -> str:
        own = [rate for (kind, of_rule, _), rate in rates.items() if kind == test and rule(of_rule)]
        return f"{min(own):.3f} to {max(own):.3f}" if own else "–"

    cells = [f"{rates['headline', '', '']:.3f}"]
    cells += [f"{rates[test, '', 'accuracy']:.3f}" for test in ("folds", "given")]
    cells += [span(test, lambda rule: rule == MOST_PROBABLE) for test in ("folds", "given")]
    cells += [span(test, lambda rule: rule not in ("", MOST_PROBABLE)) for test in ("folds", "given")]
    print(f"| {learner} | {study.title} | {' | '.join(cells)} |", flush=True)


def one_study(learner: str, study: Study, seed: int) -> dict[tuple[str, str, str], Estimate]:
    """Return (test, rule, figure) -> Estimate of one study; the headline has no rule and figure."""
    rng = np.random.default_rng([seed, 3])
    x, positive, patient, features = drawn(study, rng)
    y, fold = positive[patient], deal(rng, positive)
    areas: tuple[list[FoldFigure | None], list[FoldFigure | None]] = ([], [])
    seen, share = [], np.zeros((2, len(y)))
    called: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, len(y)), bool))
    missing: set[str] = set()
    for k in range(FOLDS):
        inner = inner_part(rng, positive, fold == k, INNER)[patient]
        test = (fold == k)[patient]
        unseen = np.flatnonzero(test | inner)
        scores = []
        for j, (own, into) in enumerate(zip(features, areas, strict=True)):
            model = LEARNERS[learner](int(rng.integers(1 << 30)))
            model.fit(x[~(test | inner)][:, own], y[~(test | inner)])
            score = np.zeros(len(y))
            score[unseen] = model.predict_proba(x[unseen][:, own])[:, 1]
            share[j, test] = score[test]
            scores.append(score)
            into.append(area_figure(y[test], score[test], patient[test], study.patients))
            called[MOST_PROBABLE][j, test] = score[test] > 0.5
            for rule in RULES:
                threshold = choose_threshold(y[inner], score[inner], rule).threshold if inner.any() else None
                if threshold is None:
                    missing.add(rule.name)
                else:
                    called[rule.name][j, test] = score[test] >= threshold
        seen.append((y[unseen], scores[0][unseen], scores[1][unseen], patient[unseen], np.full(len(unseen), k)))
    found: dict[tuple[str, str, str], Estimate] = {}
    training = share_of(seen, study.patients).value
    found["headline", "", ""] = difference_within_folds(
        [areas[0]], [areas[1]], training, absent="", n_groups=study.patients
    )
    decided = [
        decisions(y, share[j], patient, fold, {n: c[j] for n, c in called.items() if n not in missing}) for j in (0, 1)
    ]
    one, other = decided
    ratio = fold_ratio(one.rows.fold, len(y)) / (1 - INNER)
    found["folds", "", "accuracy"] = compare_accuracy([one], [other], ratio)
    found["given", "", "accuracy"] = given(decided, MOST_PROBABLE, np.ones(len(y), bool))
    for entry in compare_decisions([one], [other], ratio):
        for name, at in (("sensitivity", one.reference), ("specificity", ~one.reference)):
            found["folds", entry["rule"], name] = entry[name]
            found["given", entry["rule"], name] = given(decided, entry["rule"], at)
    return found


def decisions(
    y: np.ndarray, share: np.ndarray, patient: np.ndarray, fold: np.ndarray, called: dict[str, np.ndarray]
) -> Decided:
    """Collect the decisions of one model on its test images."""
    prob = np.column_stack([1 - share, share])
    rows = Rows(CLASSES, y.astype(int), prob, prob, patient, fold[patient], np.zeros(len(y), int))
    return Decided(rows, CLASSES[1], called, {})


def given(decided: list[Decided], rule: str, at: np.ndarray) -> Estimate:
    """Test the same decisions with models and thresholds taken as given."""
    right = [(run.called[rule] == run.reference)[at] for run in decided]
    return paired_difference(right[0], right[1], decided[0].rows.group[at], of="images")


def drawn(study: Study, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    """Draw features (n, p), labels of the patients, patients (n,), and the features of both procedures."""
    if study.uneven:
        images, deviation = uneven_patients(rng, study.patients, informative=INFORMATIVE * study.informative)
    else:
        images, deviation = np.ones(study.patients, int), rng.normal(size=study.patients)
    patient = np.repeat(np.arange(study.patients), images)
    positive = np.arange(study.patients) < study.positives
    mu = np.r_[study.distance, study.better, np.zeros(2 * study.noise)]
    own = rng.normal(size=(study.patients, len(mu)))
    own[:, 0] = deviation
    x = np.sqrt(CORRELATION) * own[patient] + np.sqrt(1 - CORRELATION) * rng.normal(size=(len(patient), len(mu)))
    x += positive[patient][:, None] * mu
    halves = np.split(np.arange(2, len(mu)), 2)
    return x, positive, patient, [np.r_[[0], [1] * (study.better > 0), halves[0]].astype(int), np.r_[0, halves[1]]]


if __name__ == "__main__":
    main()
