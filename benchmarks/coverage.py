"""Measure how often 95% intervals contain the true value, for models that are trained and for simulated scores.

The first part is ``coverage_training``, whose docstring describes the simulation. The second part needs no model: it
simulates patients whose true AUC is known.

    python -m benchmarks.coverage                       # the tables of docs/explanation/intervals.md
    python -m benchmarks.coverage --repetitions 200     # a quick look

A score is 2 for a positive image and 0 for another, plus the patient's own deviation (variance rho), plus the
image's (1 - rho). rho is the correlation of two images of one patient and class. The AUC for images of different
patients is Phi(2 / sqrt 2) = 0.921, and the sensitivity at a threshold of 1 is Phi(1) = 0.841, whatever rho is.
A second model with the same truth and different noise checks the test: p < 0.05 should occur in 5% of the repetitions.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm
from scipy.stats import t as student

from benchmarks import coverage_training
from usvit.metrics.clustered import area_covariance, area_parts, clustered_difference
from usvit.metrics.intervals import Z, logit_interval, wilson
from usvit.metrics.proportions import clustered_share

SHIFT = 2.0
AREA = float(norm.cdf(SHIFT / np.sqrt(2)))
SENSITIVITY = float(norm.cdf(SHIFT / 2))
CORRELATIONS = (0.5, 0.8)


@dataclass(frozen=True)
class Shape:
    """Patients of a data set: their number, images per patient, share of positives, labels by patient or by image."""

    title: str
    images: tuple[int, ...]
    n_positive: int
    by_image: bool = False


SHAPES = (
    Shape("BUS-BRA: 1,064 patients, 1,875 images", (2,) * 811 + (1,) * 253, 342),
    Shape("BUS-UCLM: 38 patients x 18 images", (18,) * 38, 13),
    Shape("the same, labels by image", (18,) * 38, 13, by_image=True),
)

Draw = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--training-repetitions", type=int, default=1000)
    parser.add_argument("--bootstrap-repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    start = time.perf_counter()
    coverage_training.run(given.training_repetitions)
    print("\nFixed scores\n")
    print(f"{given.repetitions} repetitions; Monte Carlo error {error(0.95, given.repetitions):.4f} at 0.95\n")
    print("| shape | correlation | clustered, logit (ours) | the same, t | DeLong, logit | DeLong, plain |")
    print("|---|---|---|---|---|---|")
    for shape in SHAPES:
        for rho in CORRELATIONS:
            print(row(shape.title, rho, *areas(shape, rho, given.repetitions, given.seed)), flush=True)
    print("\n| shape | correlation | p < 0.05, clustered | p < 0.05, DeLong by image |\n|---|---|---|---|")
    for shape in SHAPES:
        for rho in CORRELATIONS:
            rates = false_alarms(shape, rho, given.repetitions, given.seed)
            print(f"| {shape.title} | {rho} | {rates[0]:.3f} | {rates[1]:.3f} |", flush=True)
    n = given.bootstrap_repetitions
    print(f"\nSensitivity, {n} repetitions; Monte Carlo error {error(0.95, n):.4f} at 0.95\n")
    print(
        "| shape | correlation | clustered Wilson (ours) | Wilson, as if images were independent |\n|---|---|---|---|"
    )
    for shape in SHAPES:
        for rho in CORRELATIONS:
            print(row(shape.title, rho, *sensitivities(shape, rho, n, given.seed)), flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def draws(shape: Shape, rho: float, repetitions: int, seed: int) -> Iterator[Draw]:
    """Yield (labels, scores of model A, scores of model B, patients) for each repetition."""
    patient = np.repeat(np.arange(len(shape.images)), shape.images)
    groups, n = len(shape.images), len(patient)
    for k in range(repetitions):
        rng = np.random.default_rng([seed, k])
        if shape.by_image:
            positive = rng.random(n) < shape.n_positive / groups
        else:
            positive = (rng.permutation(groups) < shape.n_positive)[patient]
        scores = [
            SHIFT * positive + np.sqrt(rho) * rng.normal(size=groups)[patient] + np.sqrt(1 - rho) * rng.normal(size=n)
            for _ in range(2)
        ]
        yield positive, scores[0], scores[1], patient


def areas(shape: Shape, rho: float, repetitions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the coverage (4,) and mean length (4,) of four intervals of the AUC."""
    held, length = np.zeros(4), np.zeros(4)
    for positive, score, _, patient in draws(shape, rho, repetitions, seed):
        parts = area_parts(positive, score, patient, len(shape.images))
        independent = area_parts(positive, score, np.arange(len(score)), len(score))
        assert parts is not None and independent is not None
        variance, image_variance = area_covariance(parts, parts), area_covariance(independent, independent)
        # Satterthwaite's degrees of freedom from the two classes' numbers of patients, as in Brunner & Munzel (2000).
        up, down = int(parts.has_positive.sum()), int(parts.has_negative.sum())
        shares = (
            up / (up - 1) * parts.positives @ parts.positives,
            down / (down - 1) * parts.negatives @ parts.negatives,
        )
        freedom = (shares[0] + shares[1]) ** 2 / (shares[0] ** 2 / (up - 1) + shares[1] ** 2 / (down - 1))
        half = student.ppf(0.975, freedom) * np.sqrt(variance) / (parts.value * (1 - parts.value))
        plain = Z * np.sqrt(image_variance)
        for k, one in enumerate(
            (
                logit_interval(parts.value, variance),
                (expit(logit(parts.value) - half), expit(logit(parts.value) + half)),
                logit_interval(parts.value, image_variance),
                (parts.value - plain, parts.value + plain),
            )
        ):
            assert one is not None
            held[k] += one[0] <= AREA <= one[1]
            length[k] += one[1] - one[0]
    return held / repetitions, length / repetitions


def false_alarms(shape: Shape, rho: float, repetitions: int, seed: int) -> np.ndarray:
    """Return (2,) how often each test rejects at 5% although the two models have the same true AUC."""
    found = np.zeros(2)
    for positive, a, b, patient in draws(shape, rho, repetitions, seed):
        for k, group in enumerate((patient, np.arange(len(a)))):
            p = clustered_difference(positive, a, b, group).p
            found[k] += p is not None and p < 0.05
    return found / repetitions


def sensitivities(shape: Shape, rho: float, repetitions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return coverage (2,) and mean length (2,) of two intervals of the sensitivity at half the shift as threshold."""
    held, length = np.zeros(2), np.zeros(2)
    for positive, score, _, patient in draws(shape, rho, repetitions, seed):
        hits = score[positive] > SHIFT / 2
        for k, one in enumerate((clustered_share(hits, patient[positive]).ci95, wilson(int(hits.sum()), len(hits)))):
            assert one is not None
            held[k] += one[0] <= SENSITIVITY <= one[1]
            length[k] += one[1] - one[0]
    return held / repetitions, length / repetitions


def error(share: float, n: int) -> float:
    """Return the standard error of a share of n repetitions."""
    return float(np.sqrt(share * (1 - share) / n))


def row(title: str, rho: float, coverage: np.ndarray, length: np.ndarray) -> str:
    cells = [f"{held:.3f} ({wide:.3f})" for held, wide in zip(coverage, length, strict=True)]
    return f"| {title} | {rho} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
