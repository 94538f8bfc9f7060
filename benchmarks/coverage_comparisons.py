"""Measure how often comparisons of two equal ways of training find a difference, with models trained in folds.

    python -m benchmarks.coverage_comparisons                              # the tables of docs/explanation/intervals.md
    python -m benchmarks.coverage_comparisons --learner logistic --repetitions 50

Two procedures are equal: both train the same learner, each with one informative feature and its own half of the noise
features. A test at 5 % may reject in 5 % of the studies. The learners are logistic regression, a multilayer perceptron
and gradient-boosted trees (scikit-learn). Patients have one image, or 1 to 20 images whose features have a correlation
of 0.5 (``benchmarks.uneven_patients``); in "informative" rows the number goes with the patient's deviation in the
informative feature. There are 5 folds of patients, stratified by label, and 10 % of the training patients are inner
validation images, which choose the thresholds. Everything after training is usvit's own code on predictions tables.

"Given" is McNemar's test of the same decisions, which takes models and thresholds as given.
"""

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import logit
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks.coverage_training import CORRELATION, FOLDS, deal, inner_part
from benchmarks.uneven_patients import INFORMATIVE, uneven_patients
from usvit.evaluation.comparison import fold_ratio
from usvit.evaluation.cross_validation_headline import corrected_difference
from usvit.evaluation.decision_comparison import compare_accuracy, compare_decisions
from usvit.evaluation.decisions import MOST_PROBABLE, Decided, decided_of
from usvit.evaluation.predictions import predictions_table
from usvit.metrics.basic import Value
from usvit.metrics.paired_tests import paired_difference

CLASSES = ["benign", "malignant"]
FEWEST = 100
"""A rule that has a threshold in every fold in fewer studies is left out."""

LEARNERS: dict[str, Callable[[int], object]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=500),
    "perceptron": lambda seed: MLPClassifier((8,), learning_rate_init=0.01, max_iter=60, random_state=seed),
    "boosted trees": lambda seed: GradientBoostingClassifier(
        n_estimators=30, max_depth=2, subsample=0.7, max_features=4, random_state=seed
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
            found[name].append(value.get("p") is not None and value["p"] < 0.05)
    rates = {name: np.mean(one) for name, one in found.items() if len(one) >= min(FEWEST, repetitions)}

    def span(test: str, rule: Callable[[str], bool]) -> str:
        own = [rate for (kind, of_rule, _), rate in rates.items() if kind == test and rule(of_rule)]
        return f"{min(own):.3f} to {max(own):.3f}" if own else "–"

    cells = [f"{rates['headline', '', '']:.3f}"]
    cells += [f"{rates[test, '', 'accuracy']:.3f}" for test in ("folds", "given")]
    cells += [span(test, lambda rule: rule == MOST_PROBABLE) for test in ("folds", "given")]
    cells += [span(test, lambda rule: ">=" in rule or "Youden" in rule) for test in ("folds", "given")]
    print(f"| {learner} | {study.title} | {' | '.join(cells)} |", flush=True)


def one_study(learner: str, study: Study, seed: int) -> dict[tuple[str, str, str], Value]:
    """Return (test, rule, figure) -> Value of one study; the headline has no rule and figure."""
    a, b = trained(learner, study, seed)
    decided = [decided_of(table, CLASSES[1], CLASSES) for table in (a, b)]
    one, other = decided
    rows = one.rows
    ratio = fold_ratio(rows.fold, len(rows)) / 0.9  # a tenth of the training images is kept for thresholds
    found: dict[tuple[str, str, str], Value] = {("headline", "", ""): corrected_difference(a, b, CLASSES[1])}
    found["folds", "", "accuracy"] = compare_accuracy([one], [other], ratio)
    found["given", "", "accuracy"] = given(decided, MOST_PROBABLE, np.ones(len(rows), bool))
    for entry in compare_decisions([one], [other], ratio):
        for name, at in (("sensitivity", one.reference), ("specificity", ~one.reference)):
            if entry[name] is not None:
                found["folds", entry["rule"], name] = entry[name]
                found["given", entry["rule"], name] = given(decided, entry["rule"], at)
    return found


def given(decided: list[Decided], rule: str, at: np.ndarray) -> Value:
    """Test the same decisions with models and thresholds taken as given."""
    right = [(run.called[rule] == run.reference)[at] for run in decided]
    return paired_difference(right[0], right[1], decided[0].rows.group[at], of="images")


def trained(learner: str, study: Study, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Train both procedures in folds, and return their predictions tables (parts test and val)."""
    rng = np.random.default_rng([seed, 3])
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
    y = positive[patient]
    x += y[:, None] * mu
    halves = np.split(np.arange(2, len(mu)), 2)
    features = [np.r_[[0], [1] if study.better else [], halves[0]].astype(int), np.r_[0, halves[1]]]
    manifest = pd.DataFrame(
        {
            "image_id": [f"{k:05d}" for k in range(len(y))],
            "group_id": patient.astype(str),
            "patient_id": patient.astype(str),
            "dataset": "simulated",
            "label": np.array(CLASSES)[y.astype(int)],
        }
    )
    fold = deal(rng, positive)
    tables: tuple[list[pd.DataFrame], list[pd.DataFrame]] = ([], [])
    for k in range(FOLDS):
        inner = inner_part(rng, positive, fold == k, 0.1)
        part = np.where(fold == k, "test", np.where(inner, "val", "train"))[patient]
        train, rest = part == "train", np.flatnonzero(part != "train")
        for own_features, into in zip(features, tables, strict=True):
            model = LEARNERS[learner](int(rng.integers(1 << 30)))
            model.fit(x[train][:, own_features], y[train])  # type: ignore[attr-defined]
            share = model.predict_proba(x[rest][:, own_features])[:, 1]  # type: ignore[attr-defined]
            score = logit(np.clip(share, 1e-12, 1 - 1e-12))
            logits = np.column_stack([np.zeros(len(rest)), score])
            into.append(
                predictions_table(manifest.iloc[rest], logits, classes=CLASSES, fold=k, part=part[rest].tolist())
            )
    return pd.concat(tables[0], ignore_index=True), pd.concat(tables[1], ignore_index=True)


if __name__ == "__main__":
    main()
