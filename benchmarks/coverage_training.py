"""Measure coverage of the headline interval and error rates of the headline test with models trained in folds.

    python -m benchmarks.coverage_training                        # the first tables of docs/explanation/intervals.md
    python -m benchmarks.coverage_training --repetitions 100      # a quick look

Each study draws patients with normally distributed features, of whom 30 % are positive, splits them into 5 stratified
folds, and trains a linear discriminant in each fold. 10 % of each training split are inner validation images, which are
not used for choices here. One feature (two if two procedures are compared for power) differs between the classes; the
others are noise, which the model overfits. The true AUC of a trained direction is known in closed form: for images of
different patients it is Phi(w . mu / (sqrt 2 |w|)). With clusters, a patient has four images whose features have a
correlation of 0.5.

"These models" is the mean true AUC of the models of the study; "procedure" is its mean over all studies of the row.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit
from scipy.stats import norm
from scipy.stats import t as student

from usvit.estimate import Difference, Estimate
from usvit.metrics.clustered import clustered_auc, clustered_difference
from usvit.metrics.cross_validation import (
    FoldFigure,
    TrainingShare,
    area_figure,
    fold_mean,
    mean_figure,
    mean_value,
    training_share,
)
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.intervals import ALPHA
from usvit.metrics.margin_tests import StudentLimits
from usvit.metrics.paired_tests import corrected_t

PREVALENCE, FOLDS, CORRELATION, RIDGE = 0.3, 5, 0.5, 0.1
SHIFT = 0.5
"""Shift of all scores of a fold, in SDs of all scores, as if the folds' models were calibrated differently."""


@dataclass(frozen=True)
class Study:
    """One row of the tables; ``distance`` is the distance of the classes' means in the informative feature, in SDs."""

    n: int
    distance: float
    features: int = 20
    images: int = 1
    repeats: int = 1
    inner: float = 0.1
    noise: float = 0.0
    """SD of noise on the weights, relative to their length; it simulates different random seeds."""

    @property
    def title(self) -> str:
        parts = [f"n {self.n}", "skill" if self.distance else "no skill", f"{self.features} features"]
        parts += [f"{self.images} images a patient"] * (self.images > 1) + ["no inner images"] * (not self.inner)
        return ", ".join(parts + ["random seeds"] * (self.noise > 0))


STUDIES = (
    *(Study(n, distance) for n in (150, 240, 480, 780) for distance in (0.0, 1.5)),
    Study(240, 1.5, features=50),
    Study(780, 2.5, features=50),
    Study(480, 0.0, images=4),
    Study(480, 1.5, images=4),
    Study(240, 1.5, noise=0.5),
    Study(240, 0.0, inner=0.0),
    Study(240, 1.5, inner=0.0),
    *(Study(240, distance, repeats=r) for r in (3, 5) for distance in (0.0, 1.5)),
    Study(240, 1.5, repeats=3, inner=0.0),
)


@dataclass(frozen=True)
class Contest:
    """Two procedures: discriminants on two halves of the noise features, or on two draws of the training images."""

    n: int
    distance: float
    features: int = 20
    advantage: float = 0.0
    """Distance of the classes in a second informative feature, which only procedure A gets."""
    seeds: bool = False
    repeats: int = 1

    @property
    def title(self) -> str:
        what = f"A is better (distance {self.advantage})" if self.advantage else "equal procedures"
        how = "two bootstrap draws" if self.seeds else "two halves of the noise"
        return f"n {self.n}, {'skill' if self.distance else 'no skill'}, {self.features} features each, {how}: {what}"


CONTESTS = (
    Contest(240, 0.0, 30),
    Contest(240, 1.5, 30),
    Contest(480, 1.5, 10),
    Contest(240, 1.5, 20, seeds=True),
    Contest(240, 1.5, 20, seeds=True, repeats=3),
    Contest(240, 1.2, 10, 1.2),
    Contest(240, 1.2, 10, 1.2, repeats=3),
    Contest(480, 1.2, 10, 0.8),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--only", choices=("intervals", "tests"))
    given = parser.parse_args()
    run(given.repetitions, given.only)


def run(repetitions: int, only: str | None = None) -> None:
    """Print the tables."""
    start = time.perf_counter()
    error = np.sqrt(0.95 * 0.05 / repetitions)
    print(f"{repetitions} studies a row; Monte Carlo error {error:.3f} at 0.95\n")
    if only != "tests":
        print(
            "| study | repeats | true AUC | pooled: these models | pooled, folds shifted | headline: these models | "
            "headline: procedure | mean length, pooled and headline | training share |\n" + "|---" * 9 + "|"
        )
        others = [interval_row(study, repetitions) for study in STUDIES]
        print("\n| study | repeats | accuracy | balanced accuracy | sensitivity | specificity |\n" + "|---" * 6 + "|")
        print("\n".join(others), flush=True)
    if only != "intervals":
        heads = (
            *("two procedures", "repeats", "true difference", "headline", "plain t", "pooled, clustered"),
            *("Nadeau-Bengio t", "coverage (mean length): headline", "plain t", "headline: procedure"),
        )
        print(f"\n| {' | '.join(heads)} |\n" + "|---" * len(heads) + "|")
        for contest in CONTESTS:
            test_row(contest, repetitions)
    print(f"\n{time.perf_counter() - start:.0f} s")


def interval_row(study: Study, repetitions: int) -> str:
    """Print the row of the AUC, and return the row of the other figures."""
    found = [one_study(study, seed) for seed in range(repetitions)]
    truth = np.array([one["truth"]["auc"] for one in found])
    cells = [
        np.mean([holds(one["pooled"], true) for one, true in zip(found, truth, strict=True)]),
        np.mean([holds(one["shifted"], true) for one, true in zip(found, truth, strict=True)]),
        np.mean([holds(one["auc"], true) for one, true in zip(found, truth, strict=True)]),
        np.mean([holds(one["auc"], truth.mean()) for one in found]),
    ]
    lengths = [np.mean([np.diff(one[name].ci95) for one in found]) for name in ("pooled", "auc")]
    share = np.mean([one["share"] for one in found])
    shown = " | ".join(f"{cell:.3f}" for cell in cells)
    print(
        f"| {study.title} | {study.repeats} | {truth.mean():.3f} | {shown} | {lengths[0]:.3f}, {lengths[1]:.3f} | "
        f"{share:.2f} |",
        flush=True,
    )
    others = []
    for name in ("accuracy", "balanced", "sensitivity", "specificity"):
        both = [np.mean([holds(one[f"{name} {k}"], one["truth"][name]) for one in found]) for k in (0, 1)]
        others.append(f"{both[0]:.3f}, {both[1]:.3f}")
    return f"| {study.title} | {study.repeats} | {' | '.join(others)} |"


def holds(value: Estimate, truth: float) -> bool:
    return value.ci95 is not None and bool(value.ci95[0] <= truth <= value.ci95[1])


def one_study(study: Study, seed: int) -> dict[str, Any]:
    """Return the intervals of one study, and the true values of its models."""
    rng = np.random.default_rng([seed, 1])
    x, y, patient, positive = draw(rng, study.n, np.r_[study.distance, np.zeros(study.features - 1)], study.images)
    groups, mu = len(positive), np.r_[study.distance, np.zeros(study.features - 1)]
    names = ("auc", "accuracy", "balanced", "sensitivity", "specificity")
    figures: dict[str, list[list[FoldFigure | None]]] = {name: [] for name in names}
    truths: list[list[float]] = []
    rows: list[tuple[np.ndarray, ...]] = []
    pooled, shifted = np.zeros(study.n), np.zeros(study.n)
    for repeat in range(study.repeats):
        fold = deal(rng, positive)
        for name in names:
            figures[name].append([])
        for k in range(FOLDS):
            test = fold == k
            inner = inner_part(rng, positive, test, study.inner)
            at, unseen = test[patient], (test | inner)[patient]
            w, middle = discriminant(x[~unseen], y[~unseen])
            w = w + study.noise * np.linalg.norm(w) * rng.normal(size=len(w)) / np.sqrt(len(w))
            middle -= logit(PREVALENCE)
            score = x @ w - middle
            right = ((score > 0) == y).astype(float)
            sensitivity, specificity = (
                mean_figure(right[at], of[at], patient[at], groups, name) for name, of in (("up", y), ("down", ~y))
            )
            assert sensitivity is not None and specificity is not None
            figures["auc"][repeat].append(area_figure(y[at], score[at], patient[at], groups))
            figures["accuracy"][repeat].append(mean_figure(right[at], np.ones(at.sum(), bool), patient[at], groups))
            figures["balanced"][repeat].append(FoldFigure.mean([sensitivity, specificity]))
            figures["sensitivity"][repeat].append(sensitivity)
            figures["specificity"][repeat].append(specificity)
            length = np.linalg.norm(w)
            true = norm.cdf(np.array([w @ mu - middle, middle]) / length)
            area = norm.cdf(w @ mu / (np.sqrt(2) * length))
            truths.append([area, PREVALENCE * true[0] + (1 - PREVALENCE) * true[1], true.mean(), *true])
            rows.append((y[unseen], score[unseen], patient[unseen], np.full(unseen.sum(), repeat * FOLDS + k)))
            if not repeat:
                pooled[at] = score[at]
                shifted[at] = score[at] + SHIFT * score.std() * rng.normal()
    share = share_of(rows, groups)
    means = {name: fold_mean(figures[name]) for name in names}
    found: dict[str, Any] = {
        "truth": dict(zip(names, np.mean(truths, axis=0), strict=True)),
        "share": share.value,
        "pooled": clustered_auc(y, pooled, patient),
        "shifted": clustered_auc(y, shifted, patient),
        "auc": mean_value(means["auc"], share.value, absent="", n_groups=groups),
    }
    for name in names[1:]:
        for k, own in enumerate((0.0, share.value)):
            found[f"{name} {k}"] = mean_value(means[name], own, absent="", n_groups=groups)
    return found


def test_row(contest: Contest, repetitions: int) -> None:
    """Print how often each test gives p < 0.05, and the coverage of the true difference of the study's own models.

    "Plain t" is the symmetric interval of the same variance and degrees of freedom, which was the headline's before.
    """
    found = [one_contest(contest, seed) for seed in range(repetitions)]
    true = np.array([one[0] for one in found])
    plain = [symmetric(one[1]) for one in found]
    values: list[Sequence[Estimate]] = [
        [one[1] for one in found],
        plain,
        [one[2] for one in found],
        [one[3] for one in found],
    ]
    rates = [np.mean([value.p is not None and value.p < 0.05 for value in own]) for own in values]
    held = [np.mean([holds(value, truth) for value, truth in zip(own, true, strict=True)]) for own in values[:2]]
    length = [np.mean([np.diff(value.ci95) for value in own if value.ci95]) for own in values[:2]]
    cells = [f"{rate:.3f}" for rate in rates] + [f"{h:.3f} ({w:.3f})" for h, w in zip(held, length, strict=True)]
    cells.append(f"{np.mean([holds(value, true.mean()) for value in values[0]]):.3f}")
    print(f"| {contest.title} | {contest.repeats} | {true.mean():+.3f} | {' | '.join(cells)} |", flush=True)


def symmetric(value: Difference) -> Difference:
    """Return the Estimate with the symmetric interval and p of Student's t."""
    limits = StudentLimits.of(value)
    if limits is None:
        return value
    p = 2 * float(student.sf(abs(limits.difference) / limits.error, limits.freedom))
    return value.replace(ci95=limits.interval(ALPHA), p=p)


def one_contest(contest: Contest, seed: int) -> tuple[float, Difference, Estimate, Difference]:
    """Return the true difference of the models of one study, and the results of the three tests."""
    rng = np.random.default_rng([seed, 2])
    noise = contest.features - 1
    mu = np.r_[contest.distance, contest.advantage, np.zeros(2 * noise)]
    x, y, patient, positive = draw(rng, contest.n, mu, 1)
    a = np.r_[0, 2 : 2 + noise, [1] if contest.advantage else []].astype(int)
    b = a if contest.seeds else np.r_[0, 2 + noise : 2 + 2 * noise]
    groups, rows = len(positive), []
    repeats_a: list[list[FoldFigure | None]] = []
    repeats_b: list[list[FoldFigure | None]] = []
    truths: list[float] = []
    pooled = np.zeros((2, contest.n))
    values: list[float] = []
    for repeat in range(contest.repeats):
        fold = deal(rng, positive)
        repeats_a.append([])
        repeats_b.append([])
        for k in range(FOLDS):
            test = fold == k
            unseen = test | inner_part(rng, positive, test, 0.1)
            scores, true = [], []
            for features in (a, b):
                train = np.flatnonzero(~unseen)
                if contest.seeds:
                    train = rng.choice(train, len(train))
                w, _ = discriminant(x[train][:, features], y[train])
                scores.append(x[:, features] @ w)
                true.append(norm.cdf(w @ mu[features] / (np.sqrt(2) * np.linalg.norm(w))))
            a_figure, b_figure = (area_figure(y[test], score[test], patient[test], groups) for score in scores)
            assert a_figure is not None and b_figure is not None
            repeats_a[repeat].append(a_figure)
            repeats_b[repeat].append(b_figure)
            values.append(a_figure.value - b_figure.value)
            truths.append(true[0] - true[1])
            number = np.full(unseen.sum(), repeat * FOLDS + k)
            rows.append((y[unseen], scores[0][unseen], scores[1][unseen], patient[unseen], number))
            if not repeat:
                pooled[:, test] = np.stack(scores)[:, test]
    share = share_of(rows, groups)
    headline = difference_within_folds(repeats_a, repeats_b, share.value, absent="", n_groups=groups)
    ratio = (1 / FOLDS) / ((1 - 1 / FOLDS) * 0.9)
    pooled_test = clustered_difference(y, pooled[0], pooled[1], patient)
    return float(np.mean(truths)), headline, pooled_test, corrected_t(values, ratio)


def share_of(rows: Sequence[tuple[np.ndarray, ...]], groups: int) -> TrainingShare:
    """Estimate the training share from (positive, one or two scores, group, fold) of each model."""
    positive, *scores, group, fold = (np.concatenate(one) for one in zip(*rows, strict=True))
    return training_share(positive, scores, group, fold, groups)


def draw(rng: np.random.Generator, n: int, mu: np.ndarray, images: int) -> tuple[np.ndarray, ...]:
    """Draw features (n, p) of variance 1, labels (n,), patients (n,) and the labels of the patients."""
    groups = n // images
    positive = np.arange(groups) < round(PREVALENCE * groups)
    patient = np.repeat(np.arange(groups), images)
    x = rng.normal(size=(n, len(mu)))
    if images > 1:
        x = np.sqrt(CORRELATION) * rng.normal(size=(groups, len(mu)))[patient] + np.sqrt(1 - CORRELATION) * x
    return x + positive[patient][:, None] * mu, positive[patient], patient, positive


def deal(rng: np.random.Generator, positive: np.ndarray) -> np.ndarray:
    """Assign each patient to a fold, stratified by label."""
    fold, dealt = np.empty(len(positive), int), 0
    for label in (True, False):
        at = rng.permutation(np.flatnonzero(positive == label))
        fold[at] = (np.arange(len(at)) + dealt) % FOLDS
        dealt += len(at)
    return fold


def inner_part(rng: np.random.Generator, positive: np.ndarray, test: np.ndarray, share: float) -> np.ndarray:
    """Draw the inner validation patients of a training split, stratified by label."""
    inner = np.zeros(len(positive), bool)
    for label in (True, False):
        at = rng.permutation(np.flatnonzero(~test & (positive == label)))
        inner[at[: round(share * len(at))]] = True
    return inner


def discriminant(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a linear discriminant with a small ridge on the covariance; return its weights and its midpoint."""
    up, down = x[y].mean(axis=0), x[~y].mean(axis=0)
    rest = np.where(y[:, None], x - up, x - down)
    covariance = rest.T @ rest / (len(y) - 2) + RIDGE * np.eye(x.shape[1])
    w = np.linalg.solve(covariance, up - down)
    return w, float(w @ (up + down) / 2)


if __name__ == "__main__":
    main()
