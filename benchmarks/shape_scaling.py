"""Measure what ``usvit shape fit`` recovers from simulated sweeps, its speed, and its agreement with ``chinchilla``.

    python -m benchmarks.shape_scaling coverage --sweeps 200    # exponents and their bands, for two sizes of the noise
    python -m benchmarks.shape_scaling speed                    # fits of 90 to 1,000 points
    python -m benchmarks.shape_scaling chinchilla               # needs the package chinchilla (MIT)

A sweep is a star sweep of 90 trainings around the paper's centre, whose losses follow a known surface with the paper's
exponents (``usvit.upstream.scaling.simulation``) times 1 plus a normal error.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from usvit.upstream.scaling.bootstrap import band, bootstrap
from usvit.upstream.scaling.simulation import PAPER_EXPONENTS, known_surface, star_points
from usvit.upstream.scaling.variable_projection import SweepFitter

NOISES = (0.001, 0.003)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("coverage", "speed", "chinchilla"))
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="Seed of the first sweep.")
    parser.add_argument("--noise", type=float, action="append", help="SD of the relative error; repeat it.")
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.part == "coverage":
        for noise in arguments.noise or NOISES:
            coverage(noise, arguments.sweeps, arguments.first, arguments.draws)
    elif arguments.part == "speed":
        speed()
    else:
        against_chinchilla()


def coverage(noise: float, sweeps: int, first: int, draws: int) -> None:
    """Print how often the bands of exponents and of the predicted shape contain the true values."""
    surface = known_surface()
    shapes, compute = star_points()
    fitter = SweepFitter(shapes, compute)
    clean = surface.loss(shapes, compute)
    truth = np.concatenate([surface.exponents, np.log(surface.optimum(1e11))])
    inside, estimates, defined = np.zeros(6), [], np.zeros(6)
    for number in range(first, first + sweeps):
        losses = clean * (1 + np.random.default_rng(number).normal(0, noise, len(clean)))
        found = fitter.fit(losses, starts=6)  # instead of 24, which takes longer and finds the same minimum
        drawn = np.array(
            [[*one.exponents, *np.log(one.optimum(1e11))] for one in bootstrap(fitter, losses, found, draws, number)]
        )
        estimates.append(found.surface.exponents)
        for place in range(6):
            ends = band(drawn[:, place], fitter.spare)
            if ends is not None:
                defined[place] += 1
                inside[place] += ends[0] <= truth[place] <= ends[1]
    print(f"noise {noise:g}, {sweeps} sweeps, {draws} draws")
    for place, name in enumerate(PAPER_EXPONENTS):
        values = np.array(estimates)[:, place]
        print(
            f"  {name:6} exponent {truth[place]:.2f}: median {np.nanmedian(values):.4f}, SD {np.nanstd(values):.4f}, "
            f"band covers {inside[place] / defined[place]:.3f} of {defined[place]:.0f}; best value at 1e20 FLOPs: "
            f"{inside[place + 3] / defined[place + 3]:.3f}"
        )


def speed() -> None:
    """Print the time of a fit with 400 bootstrap draws."""
    shapes, compute = star_points()
    for n in (90, 1000):
        chosen = np.resize(np.arange(len(compute)), n)
        losses = known_surface().loss(shapes[chosen], compute[chosen])
        losses *= 1 + np.random.default_rng(0).normal(0, 0.003, n)
        fitter = SweepFitter(shapes[chosen], compute[chosen])
        start = time.perf_counter()
        found = fitter.fit(losses)
        middle = time.perf_counter()
        bootstrap(fitter, losses, found, 400)
        print(f"{n:5} points: fit {middle - start:.2f} s, 400 draws {time.perf_counter() - middle:.2f} s")


def against_chinchilla() -> None:
    """Fit the same losses with both, in the form that both have: E + A / N^alpha + B / D^beta."""
    from chinchilla import Chinchilla  # type: ignore[import-not-found]

    sizes, budgets = np.geomspace(1e7, 1e10, 10), np.geomspace(1e18, 1e21, 6)
    n, c = (one.ravel() for one in np.meshgrid(sizes, budgets))
    d = c / (6 * n)
    loss = 1.69 + 406.4 / n**0.34 + 410.7 / d**0.28
    loss *= 1 + np.random.default_rng(0).normal(0, 0.001, len(n))
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{one[0]!r},{one[1]!r},{one[2]!r},{one[3]!r}" for one in np.stack([c, n, d, loss], 1).tolist()]
        (Path(folder) / "df.csv").write_text("C,N,D,loss\n" + "\n".join(lines) + "\n")
        grid = {"e": [0.0, 0.5], "a": [5.0, 7.0], "b": [5.0, 7.0], "alpha": [0.3, 0.5], "beta": [0.3, 0.5]}
        theirs = Chinchilla(folder, param_grid=grid, loss_fn=lambda y, p: (np.log(y) - np.log(p)) ** 2, log_level=40)
        start = time.perf_counter()
        theirs.fit(parallel=False)
        theirs_seconds = time.perf_counter() - start
    start = time.perf_counter()
    ours = SweepFitter(n[:, None], c).fit(loss).surface
    ours_seconds = time.perf_counter() - start
    exponent = theirs.beta / (theirs.alpha + theirs.beta)
    print(f"chinchilla: alpha {theirs.alpha:.4f}, beta {theirs.beta:.4f}, E {theirs.E:.4f}, exponent {exponent:.4f}")
    print(f"  in {theirs_seconds:.1f} s; true 0.34, 0.28, 1.69, {0.28 / 0.62:.4f}")
    print(f"usvit: a {ours.a[0]:.4f}, b {ours.b[0]:.4f}, c {ours.c:.4f}, eps {ours.eps:.4f}, ", end="")
    print(f"exponent {ours.exponents[0]:.4f} in {ours_seconds:.1f} s")


if __name__ == "__main__":
    main()
