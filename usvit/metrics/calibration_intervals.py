"""Intervals for calibration: slope, intercept and calibration-in-the-large, and a calibration error without its bias.

Both count groups. docs/explanation/operating-points.md says how often they hold the truth.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import t as student

from usvit.metrics.bootstrap import N_RESAMPLES
from usvit.metrics.intervals import ALPHA, Interval, Z

Float = NDArray[np.float64]
TINY = 1e-12
"""A difference of shares that is nothing but rounding."""
CELLS = 2_000_000
"""Resamples x groups that are held at once: 16 MB of float64."""


def logistic_errors(
    design: Float, reference: NDArray[np.bool_], linear: Float, code: NDArray[np.int64]
) -> Float | None:
    """Standard errors of a fitted logistic regression that respect groups.

    The clustered sandwich estimator, with the factor G / (G - 1).

    Args:
        design: (n, d) covariates of the fitted coefficients.
        reference: (n,) bool.
        linear: (n,) fitted log-odds, offset included.
        code: (n,) group of each image, 0 ... G - 1.

    Returns:
        (d,) standard errors; None for fewer than two groups, or where the information matrix is singular.

    Source: Liang & Zeger (1986), Biometrika 73:13; Rogers (1993), Stata Technical Bulletin 13:19 (the factor).
    """
    n_groups = int(code.max()) + 1
    if n_groups < 2:
        return None
    prob = expit(linear)
    information = design.T @ (design * (prob * (1 - prob))[:, None])
    scores = design * (reference - prob)[:, None]
    by_group = np.stack([np.bincount(code, one, n_groups) for one in scores.T], axis=1)  # (G, d)
    try:
        bread = np.linalg.inv(information)
    except np.linalg.LinAlgError:
        return None
    variance = np.diag(bread @ (by_group.T @ by_group) @ bread) * n_groups / (n_groups - 1)
    return np.sqrt(variance) if np.isfinite(variance).all() and (variance > 0).all() else None


def student_interval(value: float, error: float, n_groups: int) -> Interval:
    """The value and a standard error from G groups: Student's t with G - 1 degrees of freedom."""
    half = float(student.ppf(1 - ALPHA / 2, n_groups - 1)) * error
    return value - half, value + half


@dataclass(frozen=True)
class DebiasedError:
    """A binned calibration error without what chance adds to it."""

    value: float
    """In [0, 1]; 0 where the plain error is no larger than chance alone makes it on average."""
    ci95: Interval | None
    noise_floor: float
    """The mean of the plain error had every bin been perfectly calibrated."""


def debiased_ece(
    residual: Float,
    which: NDArray[np.int64],
    code: NDArray[np.int64],
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> DebiasedError:
    """Calibration error over fixed bins, corrected for its upward bias, with a 95 % interval.

    The plain error sums absolute deviations, which are positive even if each bin's true deviation is 0. A bootstrap of
    groups gives the noise of the bins' deviations. The true deviations are taken to be ``a`` times the observed ones.
    The estimate is the error at the ``a`` at which the mean of the plain error, noise included, equals the plain error
    that was seen; the ends of the interval are at those ``a`` at which what was seen is the 97.5 % and the 2.5 %
    quantile. The upper end is at least that of the plain error taken as unbiased, which it is where all bins deviate
    clearly or to the same side: without this, coverage there falls to 0.82 (benchmarks/coverage_probability.py).

    Args:
        residual: (n,) outcome (0 or 1) less its probability.
        which: (n,) bin of each image, 0 ... K - 1, none empty.
        code: (n,) group of each image, 0 ... G - 1.
        n_resamples, seed: of the bootstrap.

    Returns:
        Without an interval where there is but one group, or where no resample differs.

    Source: Carpenter (1999), JRSS B 61:159 (test inversion bootstrap); the bias of binned errors: Brocker (2012),
    Climate Dynamics 39:655; Kumar, Liang & Ma (2019), NeurIPS (debiased calibration error).
    """
    n_groups, n_bins = int(code.max()) + 1, int(which.max()) + 1
    cell, size = code * n_bins + which, n_groups * n_bins
    excess = np.bincount(cell, residual, size).reshape(n_groups, n_bins)
    count = np.bincount(cell, minlength=size).reshape(n_groups, n_bins).astype(np.float64)
    total = count.sum(axis=0)
    share, deviation = total / total.sum(), excess.sum(axis=0) / total
    seen = float(share @ np.abs(deviation))
    if n_groups < 2:
        return DebiasedError(seen, None, 0.0)
    rng = np.random.default_rng(seed)
    drawn, step = [], max(1, CELLS // n_groups)
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        groups = rng.integers(0, n_groups, (rows, n_groups)) + n_groups * np.arange(rows)[:, None]
        counts = np.bincount(groups.ravel(), minlength=rows * n_groups).reshape(rows, n_groups).astype(np.float64)
        images = counts @ count
        drawn.append(np.where(images > 0, (counts @ excess) / np.maximum(images, 1), deviation))
    noise = np.concatenate(drawn) - deviation
    if np.abs(noise).max() < TINY:
        return DebiasedError(seen, None, 0.0)

    def plain(a: float) -> Float:
        """(B,) the plain error if the true deviations are ``a`` times the observed ones."""
        return np.abs(a * deviation + noise) @ share

    def solve(quantile: float | None) -> float:
        """The error at which the plain one has this quantile (None: this mean) where it was seen; 0 if never."""

        def excess_at(a: float) -> float:
            errors = plain(a)
            return float(errors.mean() if quantile is None else np.quantile(errors, quantile)) - seen

        if excess_at(0) >= 0:
            return 0.0
        high = 1.0
        while excess_at(high) < 0:
            high *= 2
        return float(brentq(excess_at, 0, high, xtol=1e-4)) * seen

    if seen == 0:
        return DebiasedError(0.0, (0.0, float(np.quantile(plain(0), 1 - ALPHA / 2))), float(plain(0).mean()))
    error = float((noise @ (share * np.sign(deviation))).std())
    low, high = solve(1 - ALPHA / 2), max(solve(ALPHA / 2), seen + Z * error)
    low, value = min(low, 1.0), min(solve(None), 1.0)
    return DebiasedError(max(low, value), (low, min(max(high, value), 1.0)), float(plain(0).mean()))
