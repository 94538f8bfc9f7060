"""Measure intervals of figures that travel, at the sizes of two data sets: 38 patients x 18 images and 1,064 x 1 to 2.

    python -m benchmarks.coverage_transfer                                      # all parts
    python -m benchmarks.coverage_transfer --part prevalence --repetitions 200  # a quick look
    python -m benchmarks.coverage_transfer --part ensemble --shape 1            # 38 patients x 18 images only

``prevalence``: PPV and NPV at a stated prevalence. ``ensemble``: the AUC of the mean of five networks minus that of one
of them. ``recalibration``: how often the range over draws of ``usvit study shift`` contains the figure that a
recalibration on other patients of the same site gives on all future patients.

Scores are those of ``benchmarks.coverage_margins``: a shift for positives, plus a deviation of the patient (variance
rho) and of the image (1 - rho).
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from scipy.special import expit, logit, softmax
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from benchmarks.coverage import CORRELATIONS, SHAPES, SHIFT, Shape
from benchmarks.coverage_margins import area_of, deviations, labels
from usvit.estimate import Estimate
from usvit.evaluation import SiteImages, fit_temperature, recalibration_draws, size_problem
from usvit.evaluation.recalibration import NoFit, fit_platt
from usvit.metrics.calibration_statistics import LOWEST_PROB
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.cross_validation import area_figure
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.intervals import ALPHA
from usvit.metrics.margin_tests import StudentLimits
from usvit.metrics.prevalence import predictive_values
from usvit.metrics.threshold_choice import Rule, choose_threshold

NETWORKS, FOLDS = 5, 5
COMMON = 0.5
"""Share of the variance of a network's scores that all networks have in common."""
RULE, DRAWS = Rule("sensitivity", 0.9), 100
PREVALENCE = 0.3
EXPECTED = 8000
"""Studies from which the expected difference of labels by image is computed; its Monte Carlo error is below 0.0002."""
FUTURE = 30_000
"""Future patients with one image each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    parser.add_argument("--shape", type=int, choices=range(len(SHAPES)), action="append", help="number, from 0; all")
    given = parser.parse_args()
    shapes = [SHAPES[number] for number in given.shape or range(len(SHAPES))]
    n, start = given.repetitions, time.perf_counter()
    print(f"{n} repetitions; Monte Carlo error {np.sqrt(0.95 * 0.05 / n):.4f} at 0.95")
    for part in given.part or PARTS:
        PARTS[part](n, shapes)
    print(f"\n{time.perf_counter() - start:.0f} s")


def prevalence(n: int, shapes: Sequence[Shape]) -> None:
    """Print the coverage at one prevalence; PPV and NPV at any other are ascending functions of the same ratios."""
    print(f"\n| shape | rho | threshold | coverage (mean length) of PPV at {PREVALENCE:g} | of NPV |")
    print("|---|---|---|---|---|")
    for shape in shapes:
        for rho in CORRELATIONS:
            for threshold in (0.7, 1.0):
                sensitivity, specificity = float(norm.cdf(SHIFT - threshold)), float(norm.cdf(threshold))
                up, down = PREVALENCE * sensitivity, (1 - PREVALENCE) * specificity
                ppv, npv = up / (up + 1 - PREVALENCE - down), down / (down + PREVALENCE - up)
                found = [
                    predictive_values(positive, score > threshold, code, PREVALENCE)
                    for positive, score, code in studies(shape, rho, n)
                ]
                shown = f"{cell([one['ppv'] for one in found], ppv)} | {cell([one['npv'] for one in found], npv)}"
                print(f"| {shape.title} | {rho} | {threshold:g} | {shown} |", flush=True)


def ensemble(n: int, shapes: Sequence[Shape]) -> None:
    """Print the coverage of the difference, and how often the whole interval lies below and above it."""
    print(
        "\n| shape | rho | true difference: within folds, pooled | within folds (mean length) | too low, too high |",
        end="",
    )
    print(" plain t | pooled |\n|---|---|---|---|---|---|---|")
    for shape in shapes:
        for rho in CORRELATIONS:
            truth = expected_differences(shape, rho) if shape.by_image else (gain(),) * 2
            within, plain, pooled = [], [], []
            for positive, mean, one, fold, code in ensembles(shape, rho, n, seed=4):
                pooled.append(clustered_difference(positive, mean, one, code))
                a, b = (
                    [
                        area_figure(positive[fold == j], score[fold == j], code[fold == j], len(shape.images))
                        for j in range(FOLDS)
                    ]
                    for score in (mean, one)
                )
                value = difference_within_folds([a], [b], 0.0, absent="no class", n_groups=len(shape.images))
                within.append(value)
                limits = StudentLimits.of(value)
                plain.append(value.replace(ci95=None if limits is None else limits.interval(ALPHA)))
            ends = np.array([one.ci95 for one in within if one.ci95])
            sides = f"{(ends[:, 1] < truth[0]).mean():.3f}, {(ends[:, 0] > truth[0]).mean():.3f}"
            print(
                f"| {shape.title} | {rho} | {truth[0]:.4f}, {truth[1]:.4f} | {cell(within, truth[0])} | {sides} | "
                f"{cell(plain, truth[0])} | {cell(pooled, truth[1])} |",
                flush=True,
            )


def ensembles(shape: Shape, rho: float, n: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield (positive, score of the ensemble, score of a member, fold, patient) of n studies."""
    code = patients(shape)
    for k in range(n):
        rng = np.random.default_rng([seed, k])
        positive = labels(shape, code, rng)
        score = networks(positive, np.array([deviations(code, rho, rng) for _ in range(NETWORKS + 1)]))
        yield positive, score.mean(axis=0), score[0], stratified(positive, code, rng), code


def expected_differences(shape: Shape, rho: float) -> tuple[float, float]:
    """Return the mean difference within folds, and of the pooled AUCs, over other studies of the shape.

    With labels by image they are smaller than ``gain``, which is that of images of different patients: within folds an
    eighth of the pairs of a positive and a negative image are of one patient, whose scores have a part in common.
    """
    found = []
    for positive, mean, one, fold, _ in ensembles(shape, rho, EXPECTED, seed=9):
        folds = [fold == j for j in range(FOLDS)]
        both = [at for at in folds if 0 < positive[at].sum() < at.sum()]
        within = [area_of(positive[at], mean[at]) - area_of(positive[at], one[at]) for at in both]
        found.append((float(np.mean(within)), area_of(positive, mean) - area_of(positive, one)))
    averaged = np.array(found).mean(axis=0)
    return float(averaged[0]), float(averaged[1])


def networks(positive: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Return (M, n) probabilities of M networks, which have the first of (M + 1, n) deviations in common."""
    score = SHIFT * positive + np.sqrt(COMMON) * away[0] + np.sqrt(1 - COMMON) * away[1:]
    return np.asarray(expit(SHIFT * (score - SHIFT / 2)))


@cache
def gain() -> float:
    """Return the true difference, from many independent images."""
    rng = np.random.default_rng(0)
    positive = np.arange(2_000_000) % 3 == 0
    score = networks(positive, rng.normal(size=(NETWORKS + 1, len(positive))))
    return float(roc_auc_score(positive, score.mean(axis=0)) - roc_auc_score(positive, score[0]))


def stratified(positive: np.ndarray, code: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return (n,) folds that keep patients whole, with positive patients spread evenly."""
    share = np.bincount(code, positive) / np.bincount(code)
    order = np.lexsort((rng.random(len(share)), share))
    fold = np.empty(len(share), dtype=np.int64)
    fold[order] = np.arange(len(share)) % FOLDS
    return fold[code]


def recalibration(n: int, shapes: Sequence[Shape]) -> None:
    print("\n| site | patients | fitted | sensitivity | specificity | O:E |\n|---|---|---|---|---|---|")
    for shape in shapes:
        if shape.by_image:
            continue
        share = shape.n_positive / len(shape.images)
        future = site_of(Shape("", (1,) * FUTURE, round(share * FUTURE)), np.random.default_rng(7))
        for size in (10, 20, 50, 100):
            if size_problem(size, len(shape.images)):
                continue
            held: dict[str, list[list[bool]]] = {}
            for k in range(n // 10):
                site, other = (site_of(shape, np.random.default_rng([seed, k])) for seed in (5, 6))
                for one in recalibration_draws(site, size, RULE, draws=DRAWS, seed=k)[1:]:
                    ranges = [one.figures[name] for name in ("sensitivity", "specificity", "observed_expected")]
                    found = recalibrated(other, future, size, one.fitted, k)
                    ends = [(each.low, each.high) for each in ranges if each.low is not None and each.high is not None]
                    if found is not None and len(ends) == len(ranges):
                        held.setdefault(one.fitted, []).append(
                            [low <= value <= high for (low, high), value in zip(ends, found, strict=True)]
                        )
            for name, rows in held.items():
                shown = " | ".join(f"{share:.2f}" for share in np.mean(rows, axis=0))
                print(f"| {shape.title} | {size} | {name} | {shown} |", flush=True)


def site_of(shape: Shape, rng: np.random.Generator) -> SiteImages:
    """Draw a site where the model's log-odds are twice as large as they should be, and too high by 1."""
    code = patients(shape)
    positive = labels(shape, code, rng)
    score = SHIFT * positive + deviations(code, 0.5, rng)
    true = logit(shape.n_positive / len(shape.images)) + SHIFT * (score - SHIFT / 2)
    p = expit(1 + 2 * true)
    return SiteImages(positive.astype(np.int64), np.column_stack([1 - p, p]), p, 0.5, code, 1)


def recalibrated(site: SiteImages, future: SiteImages, size: int, method: str, seed: int) -> list[float] | None:
    """Recalibrate on patients of a site, and return sensitivity, specificity and O:E on future patients."""
    chosen = np.random.default_rng([8, seed]).choice(int(site.group.max()) + 1, size, replace=False)
    inside = np.isin(site.group, chosen)
    label, logs = site.label[inside], [np.log(np.maximum(one.prob, LOWEST_PROB)) for one in (site, future)]
    if len(np.unique(label)) < 2:
        return None
    fit = fit_temperature(label, logs[0][inside]) if method == "temperature" else fit_platt(label, logs[0][inside], 1)
    own, p = (
        one.prob[:, 1] if isinstance(fit, NoFit) else softmax(fit.log_prob(log), axis=1)[:, 1]
        for one, log in zip((site, future), logs, strict=True)
    )
    threshold = choose_threshold(label == 1, own[inside], RULE).threshold
    if threshold is None:
        return None
    up, called = future.label == 1, p >= threshold
    return [float(called[up].mean()), float((~called[~up]).mean()), float(up.sum() / p.sum())]


def studies(shape: Shape, rho: float, n: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (positive, score, patient) of n studies."""
    code = patients(shape)
    for k in range(n):
        rng = np.random.default_rng([3, k])
        positive = labels(shape, code, rng)
        yield positive, SHIFT * positive + deviations(code, rho, rng), code


def patients(shape: Shape) -> np.ndarray:
    """Return (n,) the patient of each image."""
    return np.repeat(np.arange(len(shape.images)), shape.images)


PARTS = {"prevalence": prevalence, "ensemble": ensemble, "recalibration": recalibration}


def cell(found: Sequence[Estimate], truth: float) -> str:
    ends = np.array([one.ci95 for one in found if one.ci95], dtype=float)
    missing = f"; {len(found) - len(ends)} without" if len(ends) < len(found) else ""
    held = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()
    return f"{held:.3f} ({(ends[:, 1] - ends[:, 0]).mean():.3f}{missing})"


if __name__ == "__main__":
    main()
