"""Measure the error of non-inferiority and equivalence, the coverage of subgroup differences, and planned sizes.

    python -m benchmarks.coverage_margins                        # all parts
    python -m benchmarks.coverage_margins --part margins --repetitions 500

Patients and images are those of two data sets (``benchmarks.coverage``): 1,064 patients with one or two images, and 38
patients with 18 images. Scores are a shift for positives, plus a deviation of the patient (variance rho) and of the
image (1 - rho). In the margin tests, model A is worse than B by exactly the margin, so each claim is an error.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm, rankdata
from sklearn.linear_model import LogisticRegression

from benchmarks.coverage import CORRELATIONS, SHAPES, Shape
from usvit.evaluation.subgroup_differences import FIGURES, level_differences
from usvit.metrics.comparison_power import ObservedComparison
from usvit.metrics.cross_validation import area_figure
from usvit.metrics.fold_difference import difference_limits, difference_within_folds
from usvit.metrics.influence import LinearPredictor, binormal_placements, design_effect
from usvit.metrics.margin_tests import DifferenceLimits, equivalence, non_inferiority
from usvit.metrics.paired_tests import PairedShares
from usvit.metrics.sample_size import (
    AreaPrecision,
    CalibrationSlope,
    ComparisonTest,
    NetBenefit,
    ObservedExpected,
    PreciseFigure,
    difference_intraclass,
)

AREA, AREA_MARGIN = 0.9, 0.05
SENSITIVITY, SHARE_MARGIN = 0.841, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    n, start = given.repetitions, time.perf_counter()
    print(f"{n} repetitions; Monte Carlo error {np.sqrt(0.95 * 0.05 / n):.4f} at 0.95")
    for part in given.part or PARTS:
        PARTS[part](n, given.seed)
    print(f"\n{time.perf_counter() - start:.0f} s")


def labels(shape: Shape, code: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    groups = len(shape.images)
    if shape.by_image:
        return rng.random(len(code)) < shape.n_positive / groups
    return (rng.permutation(groups) < shape.n_positive)[code]


def deviations(code: np.ndarray, rho: float, rng: np.random.Generator) -> np.ndarray:
    own = rng.normal(size=int(code.max()) + 1)[code]
    return np.sqrt(rho) * own + np.sqrt(1 - rho) * rng.normal(size=len(code))


def pairs(shape: Shape, rho: float, repetitions: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield (positive, deviations of A, deviations of B, groups); A and B share half of their variance."""
    code = np.repeat(np.arange(len(shape.images)), shape.images)
    for k in range(repetitions):
        rng = np.random.default_rng([seed, k])
        positive, common = labels(shape, code, rng), deviations(code, rho, rng)
        a, b = ((common + deviations(code, rho, rng)) / np.sqrt(2) for _ in range(2))
        yield positive, a, b, code


def margins(n: int, seed: int) -> None:
    print("\n| shape | rho | figure | 95 % interval | 90 % interval | non-inferior | equivalent |")
    print("|---|---|---|---|---|---|---|")
    shift = float(np.sqrt(2) * norm.ppf(AREA))
    worse = float(np.sqrt(2) * norm.ppf(AREA - AREA_MARGIN))
    for shape in SHAPES:
        for rho in CORRELATIONS:
            area, share = Errors(AREA_MARGIN), Errors(SHARE_MARGIN)
            for positive, a, b, code in pairs(shape, rho, n, seed):
                groups = len(shape.images)
                one = area_figure(positive, a + worse * positive, code, groups)
                other = area_figure(positive, b + shift * positive, code, groups)
                value = difference_within_folds([[one]], [[other]], 0.0, absent="", n_groups=groups)
                area.add(difference_limits(value))
                own = np.unique(code[positive], return_inverse=True)[1]
                hits = [
                    one[positive] > norm.isf(level)
                    for one, level in ((a, SENSITIVITY - SHARE_MARGIN), (b, SENSITIVITY))
                ]
                share.add(PairedShares.of(hits[0], hits[1], own))
            print(f"| {shape.title} | {rho} | AUC {AREA - AREA_MARGIN:g} and {AREA:g} | {area} |")
            print(f"| | | sensitivity {SENSITIVITY - SHARE_MARGIN:g} and {SENSITIVITY:g} | {share} |", flush=True)


@dataclass
class Errors:
    """Counts of intervals that hold the true difference, minus the margin, and of wrong claims."""

    margin: float
    n: int = 0
    held_95: int = 0
    held_90: int = 0
    non_inferior: int = 0
    equivalent: int = 0

    def add(self, limits: DifferenceLimits | None) -> None:
        self.n += 1
        if limits is None:  # no interval excludes nothing
            self.held_95 += 1
            self.held_90 += 1
            return
        for name, alpha in (("held_95", 0.05), ("held_90", 0.1)):
            low, high = limits.interval(alpha)
            setattr(self, name, getattr(self, name) + (low <= -self.margin <= high))
        self.non_inferior += non_inferiority(limits, self.margin)["a_vs_b"]["verdict"] == "non-inferior"
        self.equivalent += equivalence(limits, self.margin)["verdict"] == "equivalent"

    def __str__(self) -> str:
        return " | ".join(
            f"{count / self.n:.3f}" for count in (self.held_95, self.held_90, self.non_inferior, self.equivalent)
        )


def subgroups(n: int, seed: int) -> None:
    """Print coverage of the difference of 0 and the rate of p < 0.05, of levels by patient and by image."""
    print("\n| shape | rho | levels differ by | figure | with an interval | coverage of 0 | p < 0.05 |")
    print("|---|---|---|---|---|---|---|")
    shift = float(np.sqrt(2) * norm.ppf(AREA))
    for shape in SHAPES:
        for rho in CORRELATIONS:
            for by in ("patient", "image"):
                found = defaultdict(list)
                for positive, a, _, code in pairs(shape, rho, n, seed):
                    prob = expit(a + shift * positive - shift / 2)
                    rng = np.random.default_rng([seed, 1])
                    level = (
                        rng.permutation(len(shape.images))[code] % 2 if by == "patient" else np.arange(len(code)) % 2
                    )
                    (one,) = level_differences(
                        positive.astype(int), np.stack([1 - prob, prob], axis=1), code, level.astype(str), positive=1
                    )
                    for name in FIGURES:
                        found[name].append(one[name])
                for name, values in found.items():
                    known = [value for value in values if value.ci95]
                    held = np.mean([value.ci95[0] <= 0 <= value.ci95[1] for value in known])
                    false = np.mean([value.p < 0.05 for value in known])
                    print(
                        f"| {shape.title} | {rho} | {by} | {name} | {len(known) / n:.3f} | {held:.3f} | {false:.3f} |",
                        flush=True,
                    )


PLANNED = ((0.9, 0.3, 1.0, 0.0, 0.0), (0.8, 0.1, 1.0, 0.0, 0.0), (0.9, 0.3, 3.0, 0.5, 0.5), (0.85, 0.4, 2.0, 0.4, 0.8))
"""AUC, prevalence, images of a patient, their coefficient of variation, correlation of the scores."""


def planned(n: int, seed: int) -> None:
    """Print the width that studies of the planned size have: 3.92 empirical standard errors, beside the aim."""
    print("\n| AUC | prevalence | images, CV | rho | figure | patients | aim: width | simulated |")
    print("|---|---|---|---|---|---|---|---|")
    threshold = 0.2
    for area, share, images, variation, rho in PLANNED:
        predictor = LinearPredictor.by_class(area, share)
        wanted: dict[str, tuple[PreciseFigure, float]] = {
            "O/E": (ObservedExpected(share), 0.3),
            "slope": (CalibrationSlope(predictor), 0.3),
            "AUC": (AreaPrecision(area, share, predictor), 0.1),
            "net benefit": (NetBenefit(*predictor.called(threshold), share, threshold), 0.2),
        }
        for number, (name, (figure, width)) in enumerate(wanted.items()):
            effect = design_effect(figure.influence.intraclass(rho), images, variation)
            patients = round(figure.size(width) * effect / images)
            values = [
                estimate(
                    name, *drawn_study(area, share, patients, images, variation, rho, [seed, number, k]), threshold
                )
                for k in range(n // 2)
            ]
            spread = float(np.std(np.log(values) if name == "O/E" else values))
            seen = 2 * np.sinh(1.96 * spread) if name == "O/E" else 3.92 * spread
            study = f"| {area} | {share} | {images:g}, {variation:g} | {rho:g} "
            print(f"{study}| {name} | {patients:,} | {width} | {seen:.3f} |", flush=True)


def drawn_study(
    area: float, share: float, patients: int, images: float, variation: float, rho: float, seed: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Draw (labels, log-odds) of a calibrated model; all images of a patient have one label."""
    rng = np.random.default_rng(seed)
    sizes = drawn_sizes(patients, images, variation, rng)
    code = np.repeat(np.arange(patients), sizes)
    positive = (rng.random(patients) < share)[code]
    spread = float(np.sqrt(2) * norm.ppf(area))
    side = np.where(positive, 0.5, -0.5) * spread**2
    return positive, float(logit(share)) + side + spread * deviations(code, rho, rng)


def drawn_sizes(patients: int, images: float, variation: float, rng: np.random.Generator) -> np.ndarray:
    """Draw numbers of images from three values, with the stated mean and coefficient of variation."""
    away = images * variation
    low, high = max(1, int(np.floor(images - away))), int(np.ceil(images + away))
    if low == high:
        return np.full(patients, low)
    ends = away**2 / ((images - low) * (high - images)) if away else 0.0
    middle = round(images)
    p_high = ends * (images - low) / (high - low)
    p_low = ends * (high - images) / (high - low)
    return rng.choice([low, middle, high], patients, p=[p_low, 1 - p_low - p_high, p_high])


def estimate(name: str, positive: np.ndarray, log_odds: np.ndarray, threshold: float) -> float:
    share = positive.mean()
    if name == "O/E":
        return float(share / expit(log_odds).mean())
    if name == "slope":
        fitted = LogisticRegression(C=np.inf, tol=1e-8).fit(log_odds[:, None], positive)
        return float(fitted.coef_[0, 0])
    if name == "AUC":
        return area_of(positive, log_odds)
    called = log_odds >= logit(threshold)
    found, needless = (called & positive).mean(), (called & ~positive).mean()
    return float((found - needless * threshold / (1 - threshold)) / share)


def area_of(positive: np.ndarray, score: np.ndarray) -> float:
    up = int(positive.sum())
    ranks = rankdata(score)[positive].sum()
    return float((ranks - up * (up + 1) / 2) / (up * (len(score) - up)))


def power(n: int, seed: int) -> None:
    """Print how often studies of the planned size make the claim that they are planned for."""
    heads = (
        "AUCs",
        "test",
        "margin",
        "images",
        "rho",
        "symmetric",
        "simulated",
        "plan",
        "simulated",
    )
    print(f"\n| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    share, agreement = 0.4, 0.5
    studies: tuple[tuple[float, float, ComparisonTest, float, int, float], ...] = (
        (0.9, 0.85, "difference", 0.0, 1, 0.0),
        (0.9, 0.85, "difference", 0.0, 3, 0.5),
        (0.88, 0.88, "noninferiority", 0.05, 1, 0.0),
        (0.88, 0.88, "noninferiority", 0.05, 3, 0.5),
        (0.88, 0.88, "equivalence", 0.05, 3, 0.5),
        (0.97, 0.97, "noninferiority", 0.03, 1, 0.0),
        (0.98, 0.98, "noninferiority", 0.03, 1, 0.0),
        (0.98, 0.98, "noninferiority", 0.03, 3, 0.5),
        (0.98, 0.98, "equivalence", 0.03, 1, 0.0),
        (0.99, 0.99, "noninferiority", 0.02, 1, 0.0),
        (0.98, 0.95, "difference", 0.0, 1, 0.0),
    )
    for a, b, test, margin, images, rho in studies:
        one, other = binormal_placements(a, share), binormal_placements(b, share)
        effect = design_effect(difference_intraclass(one, other, agreement, rho), images)
        plan = ObservedComparison(a, b, share, agreement, test, margin)
        cells = []
        for size in (plan.symmetric.size(0.8), plan.size(0.8)):
            assert size is not None
            patients = round(size * effect / images)
            cells.append(f"{patients} | {claimed(plan, patients, images, rho, n // 2, seed):.3f}")
        print(f"| {a} and {b} | {test} | {margin:g} | {images} | {rho:g} | {' | '.join(cells)} |", flush=True)


def claimed(plan: ObservedComparison, patients: int, images: int, rho: float, n: int, seed: int) -> float:
    """Return the share of n studies that make the claim."""
    claims = 0
    for k in range(n):
        rng = np.random.default_rng([seed, k])
        code = np.repeat(np.arange(patients), images)
        positive = (rng.random(patients) < plan.prevalence)[code]
        common = deviations(code, rho, rng)
        figures = [
            area_figure(
                positive,
                np.sqrt(plan.correlation) * common
                + np.sqrt(1 - plan.correlation) * deviations(code, rho, rng)
                + np.sqrt(2) * norm.ppf(truth) * positive,
                code,
                patients,
            )
            for truth in (plan.a, plan.b)
        ]
        value = difference_within_folds([figures[:1]], [figures[1:]], 0.0, absent="", n_groups=patients)
        if plan.test == "difference":
            claims += value.p is not None and value.p < 0.05
        elif plan.test == "noninferiority":
            judged = non_inferiority(difference_limits(value), plan.margin)
            claims += judged["a_vs_b"]["verdict"] == "non-inferior"
        else:
            claims += equivalence(difference_limits(value), plan.margin)["verdict"] == "equivalent"
    return claims / n


PARTS = {"margins": margins, "subgroups": subgroups, "planned": planned, "power": power}


if __name__ == "__main__":
    main()
