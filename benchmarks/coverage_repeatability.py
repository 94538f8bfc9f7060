"""Measure how often the intervals of repeatability contain the true value, for scores of known variance components.

    python -m benchmarks.coverage_repeatability                       # the tables of docs/explanation/intervals.md
    python -m benchmarks.coverage_repeatability --repetitions 200     # a quick look
    python -m benchmarks.coverage_repeatability --kinds repeats

A logit is the mean of its patient (SD 1.2) plus that of its image (SD 0.8). Two repeats of an image add errors of SD
0.5; a change adds 0.2 and a deviation of SD 0.4, of which 60 % is the patient's. In rows "uneven", the SD of the errors
of a patient is multiplied by a log-normal factor (SD 0.3 of its logarithm, mean square 1). Probabilities are the
logistic function of the logits; their errors are not normal. The true values are those of 4 million images, each of
another patient. Flips: two repeats on different sides of the threshold 0.5, whose true share is computed in the same
way.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from usvit.metrics.repeatability import LIMIT, flip_rate, paired_repeats, unordered_repeats

SHAPES = {"38 x 18": (18,) * 38, "1,064 x 1 to 2": (2,) * 811 + (1,) * 253}
UNEVEN = 0.3
MANY = 4_000_000
Float = NDArray[np.float64]
Scale = Callable[[Float], Float]
SCALES: dict[str, Scale] = {"logit": np.asarray, "probability": expit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--kinds", nargs="+", default=["repeats", "changes"], choices=["repeats", "changes"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    start, n = time.perf_counter(), given.repetitions
    print(f"{n} repetitions; Monte Carlo error {np.sqrt(0.95 * 0.05 / n):.4f} at 0.95")
    for kind in given.kinds:
        names = ["coefficient", "icc", "flips"]
        names = names if kind == "repeats" else ["bias", "lower", "upper", *names]
        print(f"\n{kind}\n\n| patients x images | errors | scale | {' | '.join(names)} |")
        print(f"|---|---|---|{'---|' * len(names)}")
        for shape, images in SHAPES.items():
            for uneven in (0.0, UNEVEN):
                for scale, of in SCALES.items():
                    held = coverage(kind, images, uneven, of, n, given.seed)
                    cells = " | ".join(f"{held[name]:.3f}" for name in names)
                    print(f"| {shape} | {'uneven' if uneven else 'even'} | {scale} | {cells} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def draw(
    kind: str, images: tuple[int, ...], uneven: float, rng: np.random.Generator
) -> tuple[Float, NDArray[np.int64]]:
    """Draw logits (n, 2) and patients (n,). Repeats pair the images of a patient, so that 18 images are 9 things."""
    if kind == "repeats":
        images = tuple(one // 2 for one in images)
    groups, patient = len(images), np.repeat(np.arange(len(images)), images)
    n = len(patient)
    factor = np.exp(uneven * rng.normal(size=groups) - uneven**2)[patient]
    base = -0.5 + 1.2 * rng.normal(size=groups)[patient] + 0.8 * rng.normal(size=n)
    if kind == "repeats":
        return base[:, None] + 0.5 * factor[:, None] * rng.normal(size=(n, 2)), patient
    away = np.sqrt(0.6) * rng.normal(size=groups)[patient] + np.sqrt(0.4) * rng.normal(size=n)
    return np.column_stack([base, base + 0.2 + 0.4 * factor * away]), patient


def truth(kind: str, uneven: float, of: Scale) -> dict[str, float]:
    """Compute the true figures."""
    images = (2 if kind == "repeats" else 1,) * MANY
    odds, _ = draw(kind, images, uneven, np.random.default_rng(1))
    x, y = of(odds).T
    d = y - x
    error = float((d**2).mean()) / 2
    flips = {"flips": float(((odds[:, 0] >= 0) != (odds[:, 1] >= 0)).mean()), "coefficient": LIMIT * np.sqrt(2 * error)}
    if kind == "repeats":
        return {**flips, "icc": 1 - error / float(np.concatenate([x, y]).var())}
    spread = {side: float(d.mean() + sign * LIMIT * d.std()) for side, sign in (("lower", -1), ("upper", 1))}
    total = (float(x.var() + y.var()) + float(d.mean()) ** 2) / 2
    return {**flips, **spread, "bias": float(d.mean()), "icc": 1 - error / total}


def coverage(
    kind: str, images: tuple[int, ...], uneven: float, of: Scale, repetitions: int, seed: int
) -> dict[str, float]:
    """Return how often each interval contains the true value."""
    true = truth(kind, uneven, of)
    held = dict.fromkeys(true, 0)
    for k in range(repetitions):
        odds, patient = draw(kind, images, uneven, np.random.default_rng([seed, k]))
        scores = of(odds)
        if kind == "repeats":
            found = unordered_repeats(scores.ravel(), np.arange(len(scores)).repeat(2), patient.repeat(2))
        else:
            found = paired_repeats(scores[:, 0], scores[:, 1], patient)
        ends = {name: getattr(found, name).ci95 for name in true if name != "flips"}
        ends["flips"] = flip_rate((odds[:, 0] >= 0) != (odds[:, 1] >= 0), patient).ci95
        for name, (low, high) in ends.items():
            held[name] += low <= true[name] <= high
    return {name: count / repetitions for name, count in held.items()}


if __name__ == "__main__":
    main()
