"""Measure the coverage of conformal sets by patient, and of the intervals of selective prediction.

    python -m benchmarks.coverage_selective                     # docs/explanation/intervals.md
    python -m benchmarks.coverage_selective --repetitions 200   # a quick look

A score is 1 for a positive image and -1 for another, plus the patient's own deviation (variance rho = 0.5) and the
image's (0.5). The image is called positive above 0, and its confidence is the distance from 0, so that the true risk at
any accepted share follows from the normal distribution. The coverage of a set is computed on 20,000 new patients with
as many images as the calibration patients.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import norm

from benchmarks.uneven_patients import INFORMATIVE, uneven_patients
from usvit.estimate import Estimate
from usvit.evaluation import fit_temperature
from usvit.metrics.conformal import GUARANTEES, Guarantee, patient_coverage, set_threshold
from usvit.metrics.proportions import clustered_share
from usvit.metrics.selective import AREA, RiskFigures, risk_coverage

RHO = 0.5
NEW = 20_000
MANY = 400_000
"""Patients from whom true values without a closed form are computed."""
UNEVEN_FIGURES = ("AURC", "risk at 0.5", "risk at 0.8", "deferral: share deferred", "deferral: error of the rest")
CUT = 0.5
"""Images closer to 0 than this are deferred."""


@dataclass(frozen=True)
class Patients:
    """Numbers of images of the patients, and how many of them are positive."""

    title: str
    images: tuple[int, ...]
    n_positive: int

    def scores(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw (positive, group, score)."""
        n = len(self.images)
        sizes = rng.permutation(np.array(self.images))
        group = np.repeat(np.arange(n), sizes)
        positive = (np.arange(n) < self.n_positive)[group]
        return positive, group, np.where(positive, 1.0, -1.0) + deviations(rng, group, n)

    def new(self, rng: np.random.Generator, n: int = NEW) -> tuple[np.ndarray, np.ndarray]:
        """Draw (group, score) of n positive patients."""
        group = np.repeat(np.arange(n), rng.choice(np.array(self.images), n))
        return group, 1 + deviations(rng, group, n)


def deviations(rng: np.random.Generator, group: np.ndarray, n: int) -> np.ndarray:
    return np.sqrt(RHO) * rng.normal(size=n)[group] + np.sqrt(1 - RHO) * rng.normal(size=len(group))


SHAPES = (
    Patients("38 patients x 18 images, 13 positive", (18,) * 38, 13),
    Patients("1,064 patients x 1 to 2 images, 342 positive", (2,) * 811 + (1,) * 253, 342),
    Patients("inner validation of these, 160 patients, 51 positive", (2,) * 122 + (1,) * 38, 51),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--only", choices=("uneven",))
    parser.add_argument("--curves", type=int, default=400, help="repetitions of the risk-coverage curve")
    given = parser.parse_args()
    start = time.perf_counter()
    if given.only != "uneven":
        even_tables(given.repetitions, given.curves)
    print(f"\nThe same with 1 to 20 images a patient; the true values are those of {MANY:,} other patients\n")
    print(f"| study | {' | '.join(UNEVEN_FIGURES)} |\n" + "|---" * (len(UNEVEN_FIGURES) + 1) + "|")
    for patients in (11, 40, 74):
        for informative in (0.0, INFORMATIVE):
            print(uneven_row(patients, informative, given.curves), flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def even_tables(repetitions: int, curves: int) -> None:
    """Print the tables of patients with equally many images."""
    print(f"{repetitions} calibrations a row\n")
    print("| calibration | alpha | guarantee | mean coverage [5 %, 95 % of calibrations] | without a set |")
    print("|---|---|---|---|---|")
    for shape in SHAPES:
        for alpha in (0.2, 0.1, 0.05):
            for guarantee in GUARANTEES:
                print(set_row(shape, alpha, guarantee, repetitions), flush=True)
    print("\nThree classes, sets of the calibrated probability, whose temperature is fitted on the same patients\n")
    for n in (9, 25, 100):
        print(three_classes(n, repetitions), flush=True)
    error = np.sqrt(0.95 * 0.05 / curves)
    print(f"\nCoverage (mean length) of 95 % intervals; Monte Carlo error {error:.3f} for the risks and AURC\n")
    print("| figure | " + " | ".join(shape.title for shape in SHAPES[:2]) + " |\n|---|---|---|")
    rows = [intervals(shape, repetitions, curves) for shape in SHAPES[:2]]
    for name in rows[0]:
        print(f"| {name} | " + " | ".join(row[name] for row in rows) + " |")


def uneven_row(n_patients: int, informative: float, repetitions: int) -> str:
    """Return the coverage of risks and of the deferral's shares for patients with 1 to 20 images."""

    def draw(rng: np.random.Generator, times: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        images, own = uneven_patients(rng, n_patients * times, informative=informative)
        group = np.repeat(np.arange(len(own)), images)
        noise = np.sqrt(RHO) * own[group] + np.sqrt(1 - RHO) * rng.normal(size=len(group))
        right = 1 - noise  # the score on the side of its class
        return np.abs(right), right < 0, group

    confidence, wrong, _ = draw(np.random.default_rng(10), MANY // n_patients)
    of_many = RiskFigures(confidence, wrong, np.zeros(len(wrong), int), (0.5, 0.8))(np.ones((1, 1)))
    rest = confidence >= CUT
    true = [float(of_many[key][0]) for key in (AREA, 0.5, 0.8)] + [1 - rest.mean(), wrong[rest].mean()]
    found = []
    for seed in range(repetitions):
        confidence, wrong, group = draw(np.random.default_rng([11, seed]))
        curve = risk_coverage(confidence, wrong, group, shares=[0.5, 0.8])
        rest = confidence >= CUT
        shares = [_ends(clustered_share(~rest, group)), _ends(clustered_share(wrong[rest], group[rest]))]
        found.append([_ends(curve.area), *map(_pair, zip(curve.lower, curve.upper, strict=True)), *shares])
    cells = [_cell(ends, truth) for ends, truth in zip(np.array(found).transpose(1, 0, 2), true, strict=True)]
    says = ", informative" if informative else ""
    return f"| {n_patients} patients{says} | {' | '.join(cells)} |"


def set_row(shape: Patients, alpha: float, guarantee: Guarantee, repetitions: int) -> str:
    """Calibrate on the positive patients, and count the new positive patients that are covered."""
    group, score = shape.new(np.random.default_rng([9, len(shape.images)]))
    reference = np.sort(score)
    if guarantee == "every image":
        worst = np.full(NEW, np.inf)
        np.minimum.at(worst, group, score)
        reference, weight = np.sort(worst), np.ones(NEW)
    else:
        order = np.argsort(score)
        weight = (1 / np.bincount(group))[group][order]
    below = np.concatenate([[0], weight.cumsum()]) / weight.sum()
    held = []
    for seed in range(repetitions):
        positive, own, values = shape.scores(np.random.default_rng([1, seed]))
        limit = set_threshold(values[positive], own[positive], alpha=alpha, guarantee=guarantee).threshold
        if limit is not None:
            held.append(1 - below[np.searchsorted(reference, limit, side="left")])
    without = repetitions - len(held)
    if not held:
        return f"| {shape.title} | {alpha:g} | {guarantee} | none | {without} |"
    low, high = np.quantile(held, [0.05, 0.95])
    return f"| {shape.title} | {alpha:g} | {guarantee} | {np.mean(held):.4f} [{low:.3f}, {high:.3f}] | {without} |"


def three_classes(n: int, repetitions: int) -> str:
    """Calibrate with n patients of each of three classes, two images each, and test on others."""
    alpha, held = 0.1, []
    for seed in range(repetitions):
        rng = np.random.default_rng([3, seed])

        def draw(count: int, rng: np.random.Generator = rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            label = np.repeat(np.arange(3), 2 * count)
            group = np.repeat(np.arange(3 * count), 2)
            noise = rng.normal(size=(3 * count, 3))[group] + rng.normal(size=(6 * count, 3))
            return label, group, 3 * (np.eye(3)[label] + 0.7 * noise)

        label, group, logits = draw(n)
        fitted = fit_temperature(label, logits)
        temperature = getattr(fitted, "value", 1.0)
        own = label == 0
        limit = set_threshold(
            softmax(logits / temperature, axis=1)[own, 0], group[own], alpha=alpha, guarantee="every image"
        ).threshold
        label, group, logits = draw(400)
        own = label == 0
        covered = softmax(logits / temperature, axis=1)[own, 0] >= (limit or 0)
        held.append(patient_coverage(covered, group[own], guarantee="every image").value or 0.0)
    error = np.std(held) / np.sqrt(repetitions)
    return f"{n} patients of each class, alpha 0.1: mean coverage {np.mean(held):.4f} (Monte Carlo error {error:.4f})"


def risk(share: float) -> float:
    """Return the true error among the share of images with the highest confidence."""

    def accepted(q: float) -> float:
        return float(norm.sf(q - 1) + norm.cdf(-q - 1))

    q = 0.0 if share == 1 else brentq(lambda q: accepted(q) - share, 0, 10)
    return float(norm.cdf(-q - 1)) / share


def intervals(shape: Patients, repetitions: int, curves: int) -> dict[str, str]:
    """Return figure -> coverage and mean length of its interval."""
    kept = float(norm.sf(CUT - 1) + norm.cdf(-CUT - 1))
    true: dict[str, float] = {
        "risk at an accepted share of 0.5": risk(0.5),
        "risk at an accepted share of 0.8": risk(0.8),
        "AURC": float(np.mean([risk((k + 0.5) / 400) for k in range(400)])),
        "deferral: share deferred": 1 - kept,
        "deferral: error of the rest": float(norm.cdf(-CUT - 1)) / kept,
        "deferral: sensitivity of the rest": float(norm.sf(CUT - 1)) / kept,
    }
    group, score = shape.new(np.random.default_rng(8), MANY)
    highest = np.full(MANY, -np.inf)
    np.maximum.at(highest, group, score)
    cut = float(np.quantile(highest - 2, 0.4))  # of patients without the class
    true["rule-out: sensitivity lost"] = float((highest < cut).mean())
    limit = float(np.quantile(score, 0.1))
    inside = np.bincount(group, weights=score >= limit) / np.bincount(group)
    true["conformal: coverage, every image"] = float((inside == 1).mean())
    true["conformal: coverage, one image"] = float(inside.mean())

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in true}
    for seed, (positive, group, score) in enumerate(draws(shape, max(repetitions, curves))):
        wrong = (score > 0) != positive
        if seed < curves:
            curve = risk_coverage(np.abs(score), wrong, group, shares=[0.5, 0.8])
            for at, share in enumerate((0.5, 0.8)):
                ends = (curve.lower[at], curve.upper[at])
                found[f"risk at an accepted share of {share}"].append(_pair(ends))
            found["AURC"].append(_ends(curve.area))
        rest = np.abs(score) >= CUT
        found["deferral: share deferred"].append(_ends(clustered_share(~rest, group)))
        found["deferral: error of the rest"].append(_ends(clustered_share(wrong[rest], group[rest])))
        ill = rest & positive
        found["deferral: sensitivity of the rest"].append(_ends(clustered_share(score[ill] > 0, group[ill])))
        most = np.full(len(shape.images), -np.inf)
        np.maximum.at(most, group, score)
        lost = most[: shape.n_positive] < cut
        found["rule-out: sensitivity lost"].append(_ends(clustered_share(lost, np.arange(len(lost)))))
        for guarantee in GUARANTEES:
            value = patient_coverage(score[positive] >= limit, group[positive], guarantee=guarantee)
            found[f"conformal: coverage, {guarantee}"].append(_ends(value))
    return {name: _cell(np.array(found[name]), true[name]) for name in true}


def draws(shape: Patients, n: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return (shape.scores(np.random.default_rng([2, seed])) for seed in range(n))


def _ends(value: Estimate) -> tuple[float, float]:
    low, high = value.ci95 or (np.nan, np.nan)
    return low, high


def _pair(ends: tuple[float | None, float | None]) -> tuple[float, float]:
    return (np.nan if ends[0] is None else ends[0], np.nan if ends[1] is None else ends[1])


def _cell(ends: np.ndarray, true: float) -> str:
    made = ends[~np.isnan(ends[:, 0])]
    held = ((made[:, 0] <= true) & (true <= made[:, 1])).mean()
    missing = f", {len(ends) - len(made)} without" if len(made) < len(ends) else ""
    return f"{held:.3f} ({(made[:, 1] - made[:, 0]).mean():.3f}{missing}); truth {true:.3f}"


if __name__ == "__main__":
    main()
