"""Measure how often the intervals of 'usvit study shift' contain the true change of the AUC and the true O:E.

    python benchmarks/coverage_shift.py                  # docs/explanation/intervals.md
    python benchmarks/coverage_shift.py --studies 100    # a quick look

Two sets of patients, inside and outside; 27 % are positive. Scores are normal with a correlation of 0.5 within a
patient, and the skill differs between the sets. With several networks, each adds noise of its own to the score; outside
each network scores all images, inside each image is scored by the network of its fold. True values are from 4 million
images. O:E is that of probabilities that are wrong by a constant factor of the odds.
"""

import argparse
import time

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from usvit.metrics.shift import independent_change, mean_area_of_folds, mean_area_of_networks, observed_to_expected

SHARE, NOISE = 0.27, 0.5
SHAPES = ((38, 18), (100, 2), (300, 1), (1064, 2))
"""Patients, and the largest number of images of one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    given = parser.parse_args()
    start, error = time.perf_counter(), np.sqrt(0.95 * 0.05 / given.studies)
    print(f"{given.studies} studies a row; Monte Carlo error {error:.3f} at 0.95\n")
    print("| patients x images | networks | skill inside, outside | change: coverage (width) | O:E: coverage (width) |")
    print("|---|---|---|---|---|")
    for patients, most in SHAPES:
        for networks in (1, 5):
            for inside, outside in ((1.5, 1.5), (2.0, 1.0)):
                print(row(patients, most, networks, inside, outside, given.studies), flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def draw(rng: np.random.Generator, patients: int, most: int, skill: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw labels by patient, scores and patients; patients have 1 to ``most`` images, or ``most`` if above 2."""
    per = np.full(patients, most) if most > 2 else rng.integers(1, most + 1, patients)
    patient = np.repeat(np.arange(patients), per)
    positive = (rng.random(patients) < SHARE)[patient]
    score = np.sqrt(0.5) * (rng.normal(size=patients)[patient] + rng.normal(size=len(patient)))
    return positive, skill * positive + score, patient


def row(patients: int, most: int, networks: int, inside: float, outside: float, studies: int) -> str:
    spread = np.sqrt(2 * (1 + NOISE**2 * (networks > 1)))
    truth = norm.cdf(outside / spread) - norm.cdf(inside / spread)
    held, width, ratio_held, ratio_width, known = 0, 0.0, 0, 0.0, 0
    true_ratio = ratio_truth(outside)
    for seed in range(studies):
        rng = np.random.default_rng([18, seed])
        positive, score, patient = draw(rng, patients, most, inside)
        fold = patient % networks
        if networks > 1:
            score = score + NOISE * rng.normal(size=len(score))
        before = mean_area_of_folds(positive, score, patient, fold)
        positive, score, patient = draw(rng, patients, most, outside)
        noise = NOISE * rng.normal(size=(networks, len(score))) if networks > 1 else np.zeros((1, len(score)))
        change = independent_change(mean_area_of_networks(positive, score + noise, patient), before)
        ratio = observed_to_expected(positive, probability(score, outside), patient)
        if change.ci95 is None or ratio.ci95 is None:
            continue
        known += 1
        low, high = change.ci95
        held, width = held + (low <= truth <= high), width + high - low
        low, high = ratio.ci95
        ratio_held, ratio_width = ratio_held + (low <= true_ratio <= high), ratio_width + high - low
    without = f"; {studies - known} without" if known < studies else ""
    images = f"1 to {most}" if most == 2 else str(most)
    return (
        f"| {patients} x {images} | {networks} | {inside:g}, {outside:g} | "
        f"{held / known:.3f} ({width / known:.3f}){without} | {ratio_held / known:.3f} ({ratio_width / known:.2f}) |"
    )


def probability(score: np.ndarray, skill: float) -> np.ndarray:
    """Return probabilities whose odds are 1.6 times too large."""
    return expit(logit(SHARE) + skill * score - skill**2 / 2 + np.log(1.6))


def ratio_truth(skill: float) -> float:
    """Return the true O:E from many independent patients."""
    rng = np.random.default_rng(0)
    positive, score, _ = draw(rng, 4_000_000, 1, skill)
    return float(positive.mean() / probability(score, skill).mean())


if __name__ == "__main__":
    main()
