"""Measure how often bands of decision curves and intervals of calibration contain the known true value.

    python -m benchmarks.coverage_probability                 # the tables of docs/explanation/operating-points.md
    python -m benchmarks.coverage_probability --studies 50    # a quick look

27 % of the patients are positive. The log-odds of a network without skill are noise. Those of a network with skill d
are calibrated: normally distributed around +d^2 / 2 for positives and -d^2 / 2 for others, relative to the prevalence,
with a standard deviation of d. For calibration they are stretched and shifted by a known slope and intercept.
"""

import argparse
import time

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

from benchmarks.uneven_patients import LARGEST, uneven_patients
from usvit.metrics.calibration_intervals import debiased_ece
from usvit.metrics.calibration_statistics import calibration_line, equal_mass_bins
from usvit.metrics.decision_curves import THRESHOLDS, simultaneous_band

SHARE, AT = 0.27, np.array(THRESHOLDS)
Images = int | str
"""Images of each patient, or UNEVEN."""
UNEVEN = "1 to 20"
SHAPES: tuple[tuple[int, Images], ...] = ((240, 1), (780, 1), (780, 2), (684, 18), (420, UNEVEN), (777, UNEVEN))
"""Images, and images of each patient; with UNEVEN numbers (``uneven_patients``) the images of 40 and 74 patients on
average."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--resamples", type=int, default=500)
    given = parser.parse_args()
    start, error = time.perf_counter(), np.sqrt(0.95 * 0.05 / given.studies)
    print(f"{given.studies} studies a row, {given.resamples} resamples; Monte Carlo error {error:.3f} at 0.95\n")
    print("| images x per patient | network | called better by the estimate | by the band | thresholds | band holds |")
    print("|---|---|---|---|---|---|")
    for n, per in SHAPES:
        for spread in (0.2, 1.0):
            print(curve_row(n, per, 0.0, spread, given.studies, given.resamples), flush=True)
    skilled: tuple[tuple[int, Images, float], ...] = ((780, 1, 0.5), (780, 1, 1.0), (780, 2, 1.0), (780, 1, 2.0))
    for n, per, skill in (*skilled, (777, UNEVEN, 1.0)):
        print(curve_row(n, per, skill, 1.0, given.studies // 3, given.resamples), flush=True)
    print("\n| images x per patient | slope, intercept | slope | intercept | in the large | ECE | errors (length) |")
    print("|---|---|---|---|---|---|---|")
    for n, per in SHAPES:
        for slope, shift in ((1.0, 0.0), (0.6, 0.0), (1.0, 0.4)):
            print(calibration_row(n, per, slope, shift, given.studies, given.resamples), flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def draw(
    rng: np.random.Generator, n: int, per: Images, skill: float, spread: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw labels by patient, log-odds, and patients."""
    if isinstance(per, int):
        images: np.ndarray | int = per
        own = rng.normal(size=n // per)
    else:
        images, own = uneven_patients(rng, round(n / ((1 + LARGEST) / 2)))
    patient = np.repeat(np.arange(len(own)), images)
    positive = (rng.random(len(own)) < SHARE)[patient]
    noise = np.sqrt(0.5) * (own[patient] + rng.normal(size=len(patient)))
    return (
        positive,
        logit(SHARE) + (skill * (skill * positive + noise - skill / 2) if skill else spread * noise),
        patient,
    )


def true_difference(skill: float, spread: float) -> np.ndarray:
    """Return the true net benefit minus that of the better default at each threshold."""
    limit, odds = logit(AT) - logit(SHARE), AT / (1 - AT)
    if skill:
        found, needless = norm.sf((limit - skill**2 / 2) / skill), norm.sf((limit + skill**2 / 2) / skill)
    else:
        found = needless = norm.sf(limit / spread)
    return found * SHARE - needless * (1 - SHARE) * odds - np.maximum(SHARE - (1 - SHARE) * odds, 0)


def curve_row(n: int, per: Images, skill: float, spread: float, studies: int, n_resamples: int) -> str:
    truth, found = true_difference(skill, spread), []
    for seed in range(studies):
        positive, odds, patient = draw(np.random.default_rng([3, seed]), n, per, skill, spread)
        band = simultaneous_band(positive, expit(odds), patient, AT, n_resamples=n_resamples, seed=seed)
        if isinstance(band, str):  # with few patients
            continue
        above, sure = (np.array(one) > 1e-12 for one in (band.difference, band.lower))
        held = (np.array(band.lower) <= truth + 1e-12).all() and (truth - 1e-12 <= np.array(band.upper)).all()
        found.append([above.any(), sure.any(), above.sum(), sure.sum(), held])
    mean = np.mean(found, axis=0)
    what = f"skill {skill:g}" if skill else f"none, spread {spread:g}"
    thresholds = f"{mean[2]:.0f} by the estimate, {mean[3]:.0f} by the band"
    if len(found) < studies:
        thresholds += f" ({studies - len(found)} studies without a band)"
    return f"| {n} x {per} | {what} | {mean[0]:.2f} | {mean[1]:.3f} | {thresholds} | {mean[4]:.2f} |"


def calibration_row(n: int, per: Images, slope: float, shift: float, studies: int, n_resamples: int) -> str:
    many, odds, _ = draw(np.random.default_rng(4), 400_000, 1, 1.5)
    said = (odds - shift) / slope
    share, prob = expit(odds), expit(said)  # true probability of positives, and the network's
    large = brentq(lambda a: expit(a + said).mean() - many.mean(), -10, 10)
    held, errors = np.zeros(4), []
    for seed in range(studies):
        positive, odds, patient = draw(np.random.default_rng([5, seed]), n, per, 1.5)
        own = (odds - shift) / slope
        line = calibration_line(positive, own, patient)
        for k, (value, truth) in enumerate(((line.slope, slope), (line.intercept, shift), (line.in_the_large, large))):
            assert value.ci95 is not None
            held[k] += value.ci95[0] <= truth <= value.ci95[1]
        which = equal_mass_bins(expit(own))
        edges = [expit(own[which == k].max()) for k in range(which.max())]
        at = np.searchsorted(edges, prob)
        n_bins = int(which.max()) + 1
        deviation = np.bincount(at, share - prob, n_bins) / np.maximum(np.bincount(at, minlength=n_bins), 1)
        truth = float(np.bincount(which) / len(which) @ np.abs(deviation))
        plain = np.abs(np.bincount(which, positive - expit(own))).sum() / len(which)
        found = debiased_ece(positive - expit(own), which, patient, n_resamples=n_resamples, seed=seed)
        assert found.ci95 is not None
        held[3] += found.ci95[0] <= truth <= found.ci95[1]
        errors.append([truth, plain, found.value, found.ci95[1] - found.ci95[0]])
    cover, mean = " | ".join(f"{one:.2f}" for one in held / studies), np.mean(errors, axis=0)
    head = f"| {n} x {per} | {slope:g}, {shift:g} | {cover}"
    return f"{head} | {mean[0]:.3f}, {mean[1]:.3f}, {mean[2]:.3f} ({mean[3]:.2f}) |"


if __name__ == "__main__":
    main()
