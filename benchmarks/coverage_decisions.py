"""Measure coverage and error rates of intervals and tests for few positives, for decisions and for subgroups.

    python benchmarks/coverage_decisions.py                      # the tables of docs/explanation/intervals.md
    python benchmarks/coverage_decisions.py --repetitions 200    # a quick look

Scores are those of ``benchmarks/coverage.py``: a shift for positives, plus a deviation of the patient (variance rho)
and of the image (1 - rho). In rows named "wide", the scores of positives have twice the standard deviation.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from usvit.estimate import Estimate
from usvit.evaluation.subgroup_differences import level_differences
from usvit.metrics.clustered import area_covariance, area_parts, clustered_auc
from usvit.metrics.intervals import logit_interval
from usvit.metrics.margin_tests import non_inferiority
from usvit.metrics.paired_tests import PairedShares, paired_difference
from usvit.metrics.prevalence import predictive_values
from usvit.metrics.proportions import clustered_share
from usvit.models.ood import Observed, fit_ood_detector


@dataclass(frozen=True)
class Study:
    """Numbers of patients of both classes, images per patient, and the correlation rho of a patient's images."""

    positives: int
    negatives: int
    images: int
    rho: float

    @property
    def title(self) -> str:
        return f"{self.positives} + {self.negatives} patients x {self.images}, rho {self.rho:g}"

    def draws(self, repetitions: int, shift: float, scale: float = 1.0) -> Iterator[tuple[np.ndarray, ...]]:
        """Draw (positive, group, scores of A, scores of B); B has the same truth and shares half of A's deviations."""
        n_groups = self.positives + self.negatives
        group = np.repeat(np.arange(n_groups), self.images)
        positive = group < self.positives
        for k in range(repetitions):
            rng = np.random.default_rng(k)

            def noise(rng: np.random.Generator = rng) -> np.ndarray:
                own = rng.normal(size=n_groups)[group]
                return np.sqrt(self.rho) * own + np.sqrt(1 - self.rho) * rng.normal(size=len(group))

            common, stretch = noise(), np.where(positive, scale, 1.0)
            a, b = (shift * positive + stretch * (common + noise()) / np.sqrt(2) for _ in range(2))
            yield positive, group, a, b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    n, start = parser.parse_args().repetitions, time.perf_counter()
    print(f"{n} repetitions; Monte Carlo error {np.sqrt(0.95 * 0.05 / n):.4f} at 0.95")
    for table in (near_one, few_groups, at_prevalence, paired, margins, subgroups, novelty):
        table(n)
    print(f"\n{time.perf_counter() - start:.0f} s")


def near_one(n: int) -> None:
    print("\n| AUC | scores | study | logit scale | now | perfect samples |\n|---|---|---|---|---|---|")
    for area in (0.95, 0.99):
        for name, scale in (("equal", 1.0), ("wide", 2.0)):
            shift = float(norm.ppf(area) * np.sqrt(1 + scale**2))
            for study in (Study(m, 100, images, rho) for m in (10, 20, 30) for images, rho in ((1, 0.0), (3, 0.5))):
                held, perfect = np.zeros(2), 0
                for positive, group, score, _ in study.draws(n, shift, scale):
                    parts = area_parts(positive, score, group, study.positives + study.negatives)
                    value = clustered_auc(positive, score, group)
                    assert parts is not None
                    perfect += parts.value == 1
                    assert value.ci95 is not None
                    old = logit_interval(parts.value, area_covariance(parts, parts)) or value.ci95
                    held += [old[0] <= area <= old[1], value.ci95[0] <= area <= value.ci95[1]]
                shown = " | ".join(f"{share:.3f}" for share in held / n)
                print(f"| {area} | {name} | {study.title} | {shown} | {perfect / n:.3f} |", flush=True)


def few_groups(n: int) -> None:
    print("\n| positive patients x 3 images, rho 0.5 | coverage of sensitivity 0.841 |\n|---|---|")
    for m in (10, 20, 30, 50, 100):
        held = 0
        for positive, group, score, _ in Study(m, 10, 3, 0.5).draws(n // 4, 2.0):
            low, high = clustered_share(score[positive] > 1, group[positive]).ci95 or (0.0, 1.0)
            held += low <= norm.cdf(1) <= high
        print(f"| {m} | {held / (n // 4):.3f} |", flush=True)


STUDIES = (Study(20, 60, 1, 0.0), Study(60, 200, 1, 0.0), Study(20, 60, 3, 0.5), Study(60, 200, 3, 0.5))


def at_prevalence(n: int) -> None:
    print("\n| threshold | study | prevalence | coverage of PPV | of NPV |\n|---|---|---|---|---|")
    for threshold in (1.0, 2.0):
        sensitivity, false = float(norm.cdf(2 - threshold)), float(norm.sf(threshold))
        for study in STUDIES:
            for share in (0.01, 0.3):
                ppv = share * sensitivity / (share * sensitivity + (1 - share) * false)
                npv = (1 - share) * (1 - false) / ((1 - share) * (1 - false) + share * (1 - sensitivity))
                held = np.zeros(2)
                for positive, group, score, _ in study.draws(n, 2.0):
                    found = predictive_values(positive, score > threshold, group, share)
                    for k, (name, truth) in enumerate((("ppv", ppv), ("npv", npv))):
                        low, high = found[name].ci95 or (0.0, 1.0)
                        held[k] += low <= truth <= high
                print(
                    f"| {threshold:g} | {study.title} | {share:g} | {held[0] / n:.3f} | {held[1] / n:.3f} |", flush=True
                )


def paired(n: int) -> None:
    print("\n| true difference | study | coverage | p < 0.05 |\n|---|---|---|---|")
    for extra in (0.0, 0.5):
        truth = float(norm.cdf(1) - norm.cdf(1 - extra))
        for study in STUDIES:
            found = [
                paired_difference(a[up] > 1, b[up] > 1 + extra, group[up], of="images")
                for up, group, a, b in study.draws(n, 2.0)
            ]
            print(f"| {truth:.3f} | {study.title} | {covered(found, truth)} | {rejected(found)} |", flush=True)


def margins(n: int) -> None:
    """Print how often non-inferiority is claimed if the true difference is minus the margin; 2.5 % are allowed."""
    print("\n| sensitivity lower by the margin | study | called non-inferior |\n|---|---|---|")
    extra = 0.5
    margin = float(norm.cdf(1) - norm.cdf(1 - extra))
    for study in STUDIES:
        claims = 0
        for up, group, a, b in study.draws(n, 2.0):
            code = np.unique(group[up], return_inverse=True)[1]
            shares = PairedShares.of(a[up] > 1 + extra, b[up] > 1, code)
            claims += non_inferiority(shares, margin)["a_vs_b"]["verdict"] == "non-inferior"
        print(f"| {margin:.3f} | {study.title} | {claims / n:.3f} |", flush=True)


def subgroups(n: int) -> None:
    print("\n| study, half of its patients a subgroup | figure | coverage of 0 | p < 0.05 |\n|---|---|---|---|")
    for study in (*STUDIES, Study(100, 300, 2, 0.5)):
        found: dict[str, list[Estimate]] = {"auc": [], "accuracy": []}
        for positive, group, score, _ in study.draws(n, 2.0):
            prob = norm.cdf(score - 1)
            level = np.where(group % 2 == 0, "a", "b")
            (one,) = level_differences(
                positive.astype(int), np.column_stack([1 - prob, prob]), group, level, positive=1
            )
            for name, values in found.items():
                values.append(one[name])
        for name, values in found.items():
            print(f"| {study.title} | {name} | {covered(values, 0)} | {rejected(values)} |", flush=True)


def novelty(n: int) -> None:
    print("\n| inner validation | promised | images like the training images flagged |\n|---|---|---|")
    for patients, images in ((19, 1), (19, 3), (30, 1), (60, 1), (60, 3)):
        shares, promised = [], 0.0
        for k in range(n // 4):
            rng = np.random.default_rng(k)

            def observed(patients: int, images: int, rng: np.random.Generator = rng) -> Observed:
                own = rng.normal(size=(patients, 1)).repeat(images, 0)
                n = patients * images
                return Observed(
                    (rng.normal(size=(n, 16)) + own / 2).astype("f4"), (rng.normal(size=(n, 23)) + own / 2).astype("f4")
                )

            train, val, new = observed(80, 1), observed(patients, images), observed(200, 1)
            fitted = fit_ood_detector(train, np.zeros(80, int), val, np.arange(patients).repeat(images))
            assert not isinstance(fitted, str)
            promised = fitted.rate
            shares.append(float((fitted.of(new) > 1).mean()))
        print(f"| {patients} patients x {images} | {promised:.3f} | {np.mean(shares):.3f} |", flush=True)


def covered(found: list[Estimate], truth: float) -> str:
    ends = [value.ci95 or (-1.0, 1.0) for value in found]
    return f"{np.mean([low <= truth <= high for low, high in ends]):.3f}"


def rejected(found: list[Estimate]) -> str:
    return f"{np.mean([value.p is not None and value.p < 0.05 for value in found]):.3f}"


if __name__ == "__main__":
    main()
