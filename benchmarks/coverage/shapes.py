"""Exponents of ``usvit shape fit``: star sweeps of 90 trainings around the paper's centre with the paper's exponents.

The losses follow a known surface (``usvit.upstream.scaling.simulation``) times 1 plus a normal error.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.coverage.harness import Interval, Outcome, Row, Spread, Table
from usvit.upstream.scaling.bootstrap import band, bootstrap
from usvit.upstream.scaling.simulation import PAPER_EXPONENTS, known_surface, star_points
from usvit.upstream.scaling.variable_projection import SweepFitter

DRAWS = 200
GFLOPS = 1e11
"""Compute for which the best shape is predicted, 1e20 FLOPs."""


@dataclass(frozen=True)
class Sweep(Row):
    """A sweep with this standard deviation of the relative error of a loss."""

    noise: float


def shape(row: Sweep, k: int) -> Outcome:
    """Bands of the exponents and of the best shape at 1e20 FLOPs, and the fitted exponents."""
    fitter, clean = _sweep()
    surface = known_surface()
    losses = clean * (1 + np.random.default_rng(k).normal(0, row.noise, len(clean)))
    found = fitter.fit(losses, starts=6)  # instead of 24, which takes longer and finds the same minimum
    drawn = np.array(
        [[*one.exponents, *np.log(one.optimum(GFLOPS))] for one in bootstrap(fitter, losses, found, DRAWS, k)]
    )
    truth = [*surface.exponents, *np.log(surface.optimum(GFLOPS))]
    names = [*PAPER_EXPONENTS, *(f"log of the best {name}" for name in PAPER_EXPONENTS)]
    outcome: dict[str, Interval | Spread] = {}
    for place, name in enumerate(names):
        outcome[name] = Interval(*(band(drawn[:, place], fitter.spare) or (np.nan, np.nan)), truth[place])
    for name, value in zip(PAPER_EXPONENTS, found.surface.exponents, strict=True):
        outcome[f"{name}, fitted"] = Spread(value)
    return outcome


@cache
def _sweep() -> tuple[SweepFitter, np.ndarray]:
    shapes, compute = star_points()
    return SweepFitter(shapes, compute), known_surface().loss(shapes, compute)


TABLES = {"shape": Table((Sweep(0.001), Sweep(0.003)), shape, 200)}
