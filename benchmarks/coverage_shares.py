"""Measure how often intervals of shares, and of figures made of shares, contain the true value.

    python -m benchmarks.coverage_shares                        # the tables of docs/explanation/intervals.md
    python -m benchmarks.coverage_shares --repetitions 100      # a quick look

Small classes, uneven numbers of images a patient (``uneven_patients``) and odd numbers of patients. A score is 2 for a
positive image and 0 for another, plus noise of variance 1, of which 0.5 is the patient's. In rows "by image" the
images of a patient differ in their label. The decision is a threshold, and the true figures follow from the normal
distribution. ``--resamples 400`` adds the bootstrap of groups (BCa) that these intervals replaced.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.uneven_patients import INFORMATIVE, true_share_above, uneven_patients
from usvit.metrics.bootstrap import Resampled, cluster_bootstrap, figure_values
from usvit.metrics.figures import Figures, Key, matthews

SHIFT, RHO = 2.0, 0.5
CLASSES = ("benign", "malignant")
FIGURES = ("sensitivity", "specificity", "ppv", "npv", "f1", "accuracy", "balanced_accuracy", "f1_macro", "mcc")


@dataclass(frozen=True)
class Study:
    """Numbers of patients of each class, and a threshold."""

    positives: int
    negatives: int
    threshold: float
    uneven: bool = False
    informative: float = 0.0
    by_image: bool = False

    @property
    def title(self) -> str:
        says = [f"{self.positives} + {self.negatives} patients x {'1 to 20' if self.uneven else '1'}"]
        says += ["informative"] * (self.informative > 0) + ["by image"] * self.by_image
        return ", ".join(says)

    def true(self) -> tuple[float, float]:
        """Return sensitivity and specificity; difficult patients, with scores on the wrong side, have more images."""
        if not self.uneven:
            return float(norm.sf(self.threshold - SHIFT)), float(norm.cdf(self.threshold))
        up, down = (
            true_share_above(self.threshold, mean=mean, rho=RHO, informative=sign * self.informative)
            for mean, sign in ((SHIFT, -1), (0.0, 1))
        )
        return up, 1 - down

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (n,) labels, decisions and patients."""
        rng = np.random.default_rng([seed, self.positives, self.negatives])
        groups = self.positives + self.negatives
        images, own = np.ones(groups, int), rng.normal(size=groups)
        if self.uneven:
            images, own = uneven_patients(rng, groups, informative=self.informative)
        patient = np.repeat(np.arange(groups), images)
        positive = (np.arange(groups) < self.positives)[patient]
        if self.by_image:
            positive = rng.random(len(patient)) < self.positives / groups
        sign = np.where(positive, -1.0, 1.0)
        score = SHIFT * positive + np.sqrt(RHO) * sign * own[patient] + np.sqrt(1 - RHO) * rng.normal(size=len(patient))
        return positive.astype(int), (score > self.threshold).astype(int), patient


STUDIES = (
    *(Study(n, 400 - n, 2.0) for n in (9, 12, 24, 39)),
    *(Study(n, 400 - n, 3.0) for n in (12, 39)),
    Study(11, 60, 1.0, uneven=True),
    Study(13, 27, 1.0, uneven=True),
    Study(13, 27, 1.0, uneven=True, informative=INFORMATIVE),
    Study(13, 27, 2.0, uneven=True, informative=INFORMATIVE),
    Study(22, 52, 1.0, uneven=True),
    Study(22, 52, 1.0, uneven=True, informative=INFORMATIVE),
    Study(22, 52, 2.0, uneven=True, informative=INFORMATIVE),
    Study(4, 7, 1.0, uneven=True, by_image=True),
    Study(13, 27, 2.0, uneven=True, by_image=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--resamples", type=int, default=0)
    given = parser.parse_args()
    start, error = time.perf_counter(), np.sqrt(0.95 * 0.05 / given.repetitions)
    print(f"{given.repetitions} studies a row; {given.resamples} resamples; Monte Carlo error {error:.3f} at 0.95")
    print("A study without an interval counts as missed; in square brackets the bootstrap\n")
    print(f"| study | true sensitivity, specificity | {' | '.join(FIGURES)} |\n" + "|---" * (len(FIGURES) + 2) + "|")
    for study in STUDIES:
        held = np.array([one_study(study, seed, given.resamples) for seed in range(given.repetitions)])
        cells = [f"{new:.3f} [{old:.2f}]" if given.resamples else f"{new:.3f}" for new, old in np.nanmean(held, axis=0)]
        up, down = study.true()
        print(f"| {study.title} | {up:.3f}, {down:.3f} | {' | '.join(cells)} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def one_study(study: Study, seed: int, n_resamples: int) -> np.ndarray:
    """Return (figures, 2) whether the interval, and the bootstrap's, contains the true value; NaN if undefined."""
    label, called, patient = study.draw(seed)
    prob, truth = np.eye(2)[called], truths(study)
    found = figure_values(label, prob, patient, classes=CLASSES, ranked=False, n_resamples=2)
    figures = Figures(label, prob, patient, ranked=False)
    resampled = cluster_bootstrap(figures, figures.n_groups, n_resamples=n_resamples) if n_resamples else {}
    return np.array(list(_held(found, resampled, truth)))


def truths(study: Study) -> dict[str, float]:
    """Return the true figures; classes have the study's share of the images."""
    (up, down), share = study.true(), study.positives / (study.positives + study.negatives)
    table = np.array([[(1 - share) * down, (1 - share) * (1 - down)], [share * (1 - up), share * up]])
    f1 = [2 * table[k, k] / (table[k].sum() + table[:, k].sum()) for k in (0, 1)]
    return {
        "sensitivity": up,
        "specificity": down,
        "ppv": table[1, 1] / table[:, 1].sum(),
        "npv": table[0, 0] / table[:, 0].sum(),
        "f1": f1[1],
        "accuracy": table[0, 0] + table[1, 1],
        "balanced_accuracy": (up + down) / 2,
        "f1_macro": float(np.mean(f1)),
        "mcc": float(matthews(table[None])[0]),
    }


def _held(
    found: dict[str, Any], resampled: Mapping[Key, Resampled], truth: dict[str, float]
) -> Iterator[tuple[float, float]]:
    for name in FIGURES:
        of_class = "malignant" in found[name]
        value = found[name]["malignant"] if of_class else found[name]
        if value.value is None:
            yield np.nan, np.nan
            continue
        old = resampled.get(Key(name, 1 if of_class else None))
        both = value.ci95, old.ci95 if old else None
        new, before = (float(ends is not None and ends[0] <= truth[name] <= ends[1]) for ends in both)
        yield new, before


if __name__ == "__main__":
    main()
