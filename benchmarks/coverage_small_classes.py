"""Measure coverage of the headline's shares with small classes, uneven patients and trained models of three kinds.

    python -m benchmarks.coverage_small_classes                                   # docs/explanation/intervals.md
    python -m benchmarks.coverage_small_classes --learner mlp --repetitions 50    # a quick look

Each study draws patients with ten normally distributed features, one of which differs between the classes by 1.5 or 2.5
standard deviations. A logistic model, a neural network (one hidden layer of 8) or boosted trees are trained in five
folds (``coverage_training``). The true figures of each model are those on 3,000 new patients. "These models" is their
mean in the study, "procedure" its mean over all studies of the row.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.coverage_training import FOLDS, deal, inner_part, share_of
from benchmarks.uneven_patients import INFORMATIVE, uneven_patients
from usvit.metrics.cross_validation import FoldFigure, fold_mean, mean_figure, mean_value

FEATURES, NEW = 10, 3000
FIGURES = ("accuracy", "balanced accuracy", "sensitivity", "specificity")
Scores = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Study:
    positives: int
    negatives: int
    distance: float = 1.5
    repeats: int = 1
    uneven: bool = False

    @property
    def title(self) -> str:
        images = "1 to 20, informative" if self.uneven else "1"
        return f"{self.positives} + {self.negatives} patients x {images} | {self.distance} | {self.repeats}"

    def images(self, rng: np.random.Generator, positive: np.ndarray) -> tuple[np.ndarray, ...]:
        """Draw (n, p) features, (n,) labels and (n,) patients of patients with these labels."""
        n = len(positive)
        sizes, own = np.ones(n, int), rng.normal(size=n)
        if self.uneven:
            sizes, own = uneven_patients(rng, n, informative=INFORMATIVE)
        patient = np.repeat(np.arange(n), sizes)
        features = rng.normal(size=(n, FEATURES))
        features[:, 0] = np.where(positive, -own, own)  # difficult patients have more images
        x = features[patient]
        if self.uneven:
            x = np.sqrt(0.5) * x + np.sqrt(0.5) * rng.normal(size=x.shape)
        x[:, 0] += self.distance * positive[patient]
        return x, positive[patient], patient


STUDIES = (
    Study(9, 91),
    Study(12, 388),
    Study(12, 388, repeats=3),
    Study(39, 361, 2.5),
    Study(39, 361, repeats=3),
    Study(13, 27, uneven=True),
    Study(22, 52, uneven=True),
    Study(22, 52, repeats=3, uneven=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--learner", choices=tuple(LEARNERS), action="append")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    start, error = time.perf_counter(), np.sqrt(0.95 * 0.05 / given.repetitions)
    print(f"{given.repetitions} studies a row; Monte Carlo error {error:.3f} at 0.95\n")
    print(f"| learner | study | distance | repeats | {' | '.join(FIGURES)} |\n" + "|---" * 8 + "|")
    for learner in given.learner or tuple(LEARNERS):
        for study in STUDIES:
            found = np.array([one_study(study, learner, seed) for seed in range(given.repetitions)])
            print(f"| {learner} | {study.title} | {' | '.join(cells(found))} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def cells(found: np.ndarray) -> list[str]:
    """Format true value, coverage of these models and of the procedure from (studies, figures, 3) truths and ends."""
    shown = []
    for own in found.transpose(1, 2, 0):
        truth, low, high = own
        these, procedure = (((low <= true) & (true <= high)).mean() for true in (truth, truth.mean()))
        shown.append(f"{truth.mean():.3f}: {these:.3f}, {procedure:.3f}")
    return shown


def one_study(study: Study, learner: str, seed: int) -> np.ndarray:
    """Return (figures, 3): the mean true figure of the models, and both ends of the interval."""
    rng = np.random.default_rng([seed, study.positives, 5])
    positive = np.arange(study.positives + study.negatives) < study.positives
    x, y, patient = study.images(rng, positive)
    new_x, new_y, _ = study.images(rng, np.arange(NEW) < NEW // 2)
    figures: list[list[list[FoldFigure | None]]] = [[[] for _ in range(study.repeats)] for _ in FIGURES]
    rows, truths = [], []
    for repeat in range(study.repeats):
        fold = deal(rng, positive)
        for k in range(FOLDS):
            test = fold == k
            at, unseen = test[patient], (test | inner_part(rng, positive, test, 0.1))[patient]
            number = repeat * FOLDS + k
            score = LEARNERS[learner](x[~unseen], y[~unseen], 100 * seed + number)
            own, called = score(x), score(new_x) > 0
            right = ((own > 0) == y).astype(float)
            every = (np.ones(len(y), bool), y, ~y)
            accuracy, up, down = (mean_figure(right[at], of[at], patient[at], len(positive)) for of in every)
            both = None if up is None or down is None else FoldFigure.mean([up, down])
            for name, figure in enumerate((accuracy, both, up, down)):
                figures[name][repeat].append(figure)
            sensitivity, specificity = called[new_y].mean(), (~called)[~new_y].mean()
            truths.append([y.mean() * sensitivity + (1 - y.mean()) * specificity, 0.0, sensitivity, specificity])
            truths[-1][1] = (sensitivity + specificity) / 2
            rows.append((y[unseen], own[unseen], patient[unseen], np.full(unseen.sum(), number)))
    share = share_of(rows, len(positive)).value
    out = []
    for name, truth in enumerate(np.mean(truths, axis=0)):
        value = mean_value(fold_mean(figures[name]), share, absent="", n_groups=len(positive))
        out.append([truth, *(value.ci95 or (np.nan, np.nan))])
    return np.array(out)


def logistic(x: np.ndarray, y: np.ndarray, seed: int) -> Scores:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(class_weight="balanced", random_state=seed).fit(x, y).decision_function


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

if __name__ == "__main__":
    main()
