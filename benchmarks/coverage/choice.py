"""Nested choice among models whose scores are drawn: 8 models on the same patients and five folds.

A score is D for a positive image and 0 for another, plus noise that all models share and noise of each model, both
partly of the patient. 15 % of the patients are inner validation patients of a fold. Model c has c + 1 parameters.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from benchmarks.coverage.harness import Outcome, Row, Spread, Table, interval
from usvit.metrics.cross_validation import fold_mean, mean_value
from usvit.metrics.fold_figures import FoldFigure, area_figure
from usvit.metrics.nested_choice import nested_choice

K, N_MODELS = 5, 8
SHARED, OWN = (0.6, 0.4), (0.5, 0.5)
"""Standard deviations of the parts of the noise: of the patient, and of the image."""


@dataclass(frozen=True)
class Candidates(Row):
    """Patients, images of each, and the D of the first model; that of the last is 3 - D, with equal steps between."""

    patients: int
    images: int
    lowest_d: float


def choice(row: Candidates, k: int) -> Outcome:
    """The figure of the chosen models, apparent minus nested, and the optimism of choosing on the test images.

    Apparent minus nested has no true value but its mean over the studies, so that its second coverage counts.
    """
    distance = np.linspace(row.lowest_d, 3 - row.lowest_d, N_MODELS)
    truth = norm.cdf(distance / np.sqrt(2 * sum(sd**2 for sd in (*SHARED, *OWN))))
    rng = np.random.default_rng([12, row.patients, k])
    val, test = _study(rng, row, distance)
    while any(figure is None for part in (val, test) for model in part for figure in model):
        val, test = _study(rng, row, distance)
    found = nested_choice(val, test, [[c + 1] * K for c in range(N_MODELS)], [0] * K, seed=k)
    value = mean_value(fold_mean([list(found.figures)]), 0.0, absent="", n_groups=row.patients)
    chosen = float(np.mean([truth[one.chosen] for one in found.folds]))
    apparent = np.mean([figure.value for figure in test[found.apparent] if figure is not None])
    gap = found.apparent_minus_nested
    assert value.value is not None and gap.value is not None
    return {
        "nested": interval(value, chosen),
        "nested minus truth": Spread(value.value - chosen),
        "apparent minus nested": interval(gap, gap.value),
        "optimism": Spread(apparent - truth[found.apparent]),
    }


def _study(
    rng: np.random.Generator, row: Candidates, distance: np.ndarray
) -> tuple[list[list[FoldFigure | None]], list[list[FoldFigure | None]]]:
    """Draw one study; return the figures of each model on the inner validation and test images of each fold."""
    n, patient = row.patients, np.repeat(np.arange(row.patients), row.images)
    positive, fold = (rng.random(n) < 0.35)[patient], (rng.permutation(n) % K)[patient]
    inner = [(rng.random(n) < 0.15 / (1 - 1 / K))[patient] & (fold != k) for k in range(K)]

    def noise(sd: tuple[float, float]) -> np.ndarray:
        return sd[0] * rng.normal(size=n)[patient] + sd[1] * rng.normal(size=len(patient))

    shared, val, test = noise(SHARED), list[list[FoldFigure | None]](), list[list[FoldFigure | None]]()
    for d in distance:
        score = d * positive + shared + noise(OWN)
        for into, parts in ((val, inner), (test, [fold == k for k in range(K)])):
            into.append([area_figure(positive[at], score[at], patient[at], n) for at in parts])
    return val, test


TABLES = {
    "choice": Table(
        tuple(Candidates(n, m, lowest) for n, m in ((38, 18), (300, 2), (1064, 2)) for lowest in (1.5, 1.4, 1.2)),
        choice,
        200,
    ),
}
