"""Intervals for calibration slope, intercept and calibration-in-the-large, and for a debiased calibration error.

Both count groups. docs/explanation/operating-points.md reports their coverage.
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
"""Differences of shares below this are due to rounding."""
CELLS = 2_000_000
"""Resamples x groups in memory at once: 16 MB of float64."""


def logistic_errors(
    design: Float, reference: NDArray[np.bool_], linear: Float, code: NDArray[np.int64]
) -> Float | None:
    """Compute standard errors of a fitted logistic regression that respect groups.

    This is the clustered sandwich estimator with the factor G / (G - 1).

    Args:
        design: (n, d) covariates of the fitted coefficients.
        reference: (n,) bool.
        linear: (n,) fitted log-odds, offset included.
        code: (n,) group of each image, 0 ... G - 1.

    Returns:
        (d,) standard errors; None for fewer than two groups or a singular information matrix.

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
    """Compute the interval of a value whose standard error rests on G groups: Student's t, G - 1 degrees of freedom."""
    half = float(student.ppf(1 - ALPHA / 2, n_groups - 1)) * error
    return value - half, value + half


@dataclass(frozen=True)
class _DebiasedError:
    """A binned calibration error without the part that chance adds."""

    value: float
    """In [0, 1]; 0 if the plain error is not larger than its mean under perfect calibration."""
    ci95: Interval | None
    noise_floor: float
    """Mean of the plain error if every bin were perfectly calibrated."""


def debiased_ece(
    residual: Float,
    which: NDArray[np.int64],
    code: NDArray[np.int64],
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> _DebiasedError:
    """Compute the calibration error over fixed bins, corrected for its upward bias, with a 95 % interval.

    The plain error sums absolute deviations, which are positive even if the true deviation of each bin is 0. A
    bootstrap of groups estimates the noise of the deviations. The true deviations are modelled as ``a`` times the
    observed ones. The estimate is the error at the ``a`` for which the mean of the plain error, including noise, equals
    the observed plain error. The ends of the interval are at those ``a`` for which the observed error is the 97.5 % and
    the 2.5 % quantile. The upper end is at least that of the plain error taken as unbiased, which it is if all bins
    deviate clearly or to the same side; without this, coverage falls to 0.82 there
    (the table ``calibration`` of benchmarks.coverage).

    Args:
        residual: (n,) outcome (0 or 1) minus its probability.
        which: (n,) bin of each image, 0 ... K - 1, none empty.
        code: (n,) group of each image, 0 ... G - 1.
        n_resamples, seed: of the bootstrap.

    Returns:
        There is no interval for a single group, or if all resamples are equal.

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
        return _DebiasedError(seen, None, 0.0)
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
        return _DebiasedError(seen, None, 0.0)

    def plain(a: float) -> Float:
        """Compute the (B,) plain error if the true deviations are ``a`` times the observed ones."""
        return np.abs(a * deviation + noise) @ share

    def solve(quantile: float | None) -> float:
        """Return the error for which the observed plain error is this quantile (None: the mean); 0 if there is none."""

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
        return _DebiasedError(0.0, (0.0, float(np.quantile(plain(0), 1 - ALPHA / 2))), float(plain(0).mean()))
    error = float((noise @ (share * np.sign(deviation))).std())
    low, high = solve(1 - ALPHA / 2), max(solve(ALPHA / 2), seen + Z * error)
    low, value = min(low, 1.0), min(solve(None), 1.0)
    return _DebiasedError(max(low, value), (low, min(max(high, value), 1.0)), float(plain(0).mean()))
