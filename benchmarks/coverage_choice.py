"""Measure whether nested choice is unbiased, how much the apparent best flatters, and how often the intervals hold.

    python benchmarks/coverage_choice.py                # docs/explanation/intervals.md
    python benchmarks/coverage_choice.py --studies 50   # a quick look

Each study has 8 models, of which model c has c + 1 parameters, on the same patients and five folds; 15 % of the
patients are inner validation patients of a fold. A score is D_c for a positive image and 0 for another, plus noise that
all models share and noise of each model, both partly of the patient. All images of a patient have the same label. The
true AUC of a model on new patients follows from the normal distribution. Studies in which a class is absent from a
split are drawn again.

Apparent minus nested is compared with its mean over the studies, and the nested figure with the mean true AUC of the
models that the folds chose. The optimism of choosing on the test images, in the last column, is how far the figure of
the apparent best lies above its own true AUC. The interval of the nested figure is that of ``usvit study best`` without
a training share, because these models are not trained.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from usvit.metrics.cross_validation import FoldFigure, area_figure, fold_mean, mean_value
from usvit.metrics.nested_choice import nested_choice

K, SHARE, VAL, N_MODELS = 5, 0.35, 0.15, 8
SHARED_PATIENT, SHARED_IMAGE, OWN_PATIENT, OWN_IMAGE = 0.6, 0.4, 0.5, 0.5
"""Standard deviations of the parts of the noise."""


@dataclass(frozen=True)
class Shape:
    n_groups: int
    per_group: int
    lowest: float
    """D of the first model; that of the last is 3 - D, with equal steps between."""


SHAPES = tuple(Shape(n, m, lowest) for n, m in ((38, 18), (300, 2), (1064, 1), (1064, 2)) for lowest in (1.5, 1.4, 1.2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--only", type=int, nargs="*", help="Numbers of the shapes, from 0.")
    parser.add_argument("--models", type=int, default=N_MODELS, help="1 gives the headline without a choice")
    arguments = parser.parse_args()
    print("| patients x images | D | apparent minus nested | interval holds | nested, bias (SE) | holds | optimism |")
    print("|---|---|---|---|---|---|---|")
    for number in arguments.only or range(len(SHAPES)):
        begun = time.monotonic()
        print(row_of(SHAPES[number], arguments.studies, arguments.models, seed=number), flush=True)
        print(f"<!-- {time.monotonic() - begun:.0f} s -->", flush=True)


def row_of(shape: Shape, studies: int, models: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    distance = np.linspace(shape.lowest, 3 - shape.lowest, models)
    noise = np.sqrt(SHARED_PATIENT**2 + SHARED_IMAGE**2 + OWN_PATIENT**2 + OWN_IMAGE**2)
    truth = norm.cdf(distance / noise / np.sqrt(2))
    parameters = [[c + 1] * K for c in range(models)]
    rows: list[tuple[float, ...]] = []
    while len(rows) < studies:
        val, test = study(rng, shape, distance)
        if any(one is None for part in (val, test) for model in part for one in model):
            continue
        found = nested_choice(val, test, parameters, [0] * K, seed=len(rows))
        mean = fold_mean([list(found.figures)])
        assert mean is not None
        chosen = float(np.mean([truth[one.chosen] for one in found.folds]))
        ends = mean_value(mean, 0.0, absent="", n_groups=shape.n_groups).ci95 or [np.nan, np.nan]
        apparent = np.mean([one.value for one in test[found.apparent] if one is not None]) - truth[found.apparent]
        gap = found.apparent_minus_nested
        own = gap.ci95 or [np.nan, np.nan]
        assert gap.value is not None
        rows.append((gap.value, *own, mean.value - chosen, ends[0] <= chosen <= ends[1], apparent))
    table = np.array(rows, dtype=float)
    mean_gap = table[:, 0].mean()
    held = ((table[:, 1] <= mean_gap) & (mean_gap <= table[:, 2])).mean()
    error = table[:, 3].std(ddof=1) / np.sqrt(studies)
    span = f"{shape.lowest:g}" if distance[0] == distance[-1] else f"{distance[0]:g} to {distance[-1]:g}"
    return (
        f"| {shape.n_groups} x {shape.per_group} | {span} | {mean_gap:+.3f} | {held:.2f} | "
        f"{table[:, 3].mean():+.3f} ({error:.3f}) | {table[:, 4].mean():.2f} | {table[:, 5].mean():+.3f} |"
    )


def study(
    rng: np.random.Generator, shape: Shape, distance: np.ndarray
) -> tuple[list[list[FoldFigure | None]], list[list[FoldFigure | None]]]:
    """Draw one study; return the figures of each model on the inner validation and test images of each fold."""
    n = shape.n_groups
    code = np.repeat(np.arange(n), shape.per_group)
    positive = (rng.random(n) < SHARE)[code]
    fold = (rng.permutation(n) % K)[code]
    inner = [(rng.random(n) < VAL / (1 - 1 / K))[code] & (fold != k) for k in range(K)]
    shared = SHARED_PATIENT * rng.normal(size=n)[code] + SHARED_IMAGE * rng.normal(size=len(code))
    val: list[list[FoldFigure | None]] = []
    test: list[list[FoldFigure | None]] = []
    for d in distance:
        own = OWN_PATIENT * rng.normal(size=n)[code] + OWN_IMAGE * rng.normal(size=len(code))
        score = d * positive + shared + own
        val.append([area_figure(positive[at], score[at], code[at], n) for at in inner])
        test.append([area_figure(positive[fold == k], score[fold == k], code[fold == k], n) for k in range(K)])
    return val, test


if __name__ == "__main__":
    main()
