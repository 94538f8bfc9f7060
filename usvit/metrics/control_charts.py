"""Control charts of several quantities: an alarm has a stated probability in each period in which nothing changes.

A period, such as a month, has patients with images, and each image has the quantities to watch. The charts compare the
mean of each quantity over the images with that of a baseline. One chart looks for jumps, the other for slow drifts.

- Deviation of a quantity: the difference of the means over its standard error, from the variances between and within
  the patients of the baseline (one-way analysis of variance), at the period's own numbers of images.
- Jump: the largest deviation of all quantities (Shewhart). Drift: the largest exponentially weighted moving average of
  the deviations (EWMA; Roberts 1959, Technometrics 1:239).
- Limits: whole patients are drawn from the baseline, as many as each period has, against a baseline that is drawn
  likewise. Many such histories run through the same periods, and each limit is the quantile of the histories without an
  earlier alarm: dynamic probability control limits (Shen, Tsung, Zou & Jiang 2014, Statistics in Medicine 33:3103;
  Zhang & Woodall 2015, Statistics in Medicine 34:3336). The probability of a false alarm in a period is then the
  stated one at any size of the period, and the uncertainty of the baseline is included (Jensen et al. 2006, Journal of
  Quality Technology 38:349). The maximum over quantities keeps it for all of them together (Westfall & Young 1993,
  Resampling-Based Multiple Testing), each in units of its own 99 % quantile (balanced; Beran 1988, JASA 83:679).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]

SMOOTHING = 0.2
"""Weight of the newest period in the moving average; 0.05 to 0.25 is usual (Montgomery, Statistical Quality Control,
section 9.2)."""
N_HISTORIES = 4000
_MOST_HISTORIES = 20_000
_TAIL = 20
"""Number of histories beyond a limit, so that its probability is known to a fifth or so."""
_CHUNK = 4_000_000
_BALANCE = 0.99


@dataclass(frozen=True)
class PatientSums:
    """Sums over the images of each of G patients, of Q quantities.

    Attributes:
        images: (G, Q) images that have the quantity.
        total: (G, Q) sum of its values.
        squares: (G, Q) sum of their squares.
    """

    images: Float
    total: Float
    squares: Float

    @classmethod
    def of(cls, values: ArrayLike, group: ArrayLike) -> "PatientSums":
        """Compute the sums of (n, Q) values, NaN where an image lacks a quantity, and (n,) patients; n may be 0."""
        table = np.asarray(values, dtype=np.float64)
        codes = np.unique(np.asarray(group), return_inverse=True)[1].ravel()
        n_groups = int(codes.max()) + 1 if len(codes) else 0
        known = np.isfinite(table)
        filled = np.where(known, table, 0.0)
        sums = [np.zeros((n_groups, table.shape[1])) for _ in range(3)]
        for into, part in zip(sums, (known.astype(np.float64), filled, filled**2), strict=True):
            np.add.at(into, codes, part)
        return cls(*sums)

    @property
    def n_patients(self) -> int:
        return len(self.images)

    @property
    def means(self) -> Float:
        """(Q,) means over images; NaN without an image."""
        return _ratio(self.total.sum(axis=0), self.images.sum(axis=0))


@dataclass(frozen=True)
class ChartPoint:
    """One period of a chart. A quantity that the period or the baseline lacks has NaN.

    Attributes:
        deviation: (Q,) difference from the baseline over its standard error.
        drift: (Q,) moving average of the deviations.
        jump_limits: (Q,) a deviation beyond it is an alarm.
        drift_limits: (Q,) a moving average beyond it is an alarm.
        jumps: (Q,) bool.
        drifts: (Q,) bool.
    """

    deviation: Float
    drift: Float
    jump_limits: Float
    drift_limits: Float
    jumps: NDArray[np.bool_]
    drifts: NDArray[np.bool_]

    @property
    def alarm(self) -> bool:
        return bool(self.jumps.any() or self.drifts.any())


def control_chart(
    baseline: PatientSums,
    periods: Sequence[PatientSums],
    rates: Sequence[float],
    *,
    upward: ArrayLike,
    steady: ArrayLike,
    seed: int = 0,
) -> list[ChartPoint]:
    """Compare periods with a baseline.

    After an alarm the moving averages start again at zero.

    Args:
        baseline: G >= 2 patients.
        periods: in the order of time; each has a patient.
        rates: probability of a false alarm in each period, in (0, 1); half of it for each of the two charts.
        upward: (Q,) bool, whether only a rise is an alarm.
        steady: (Q,) value that one more patient of the baseline has, NaN for none. It lets a share of 0 vary, which
            would otherwise make the first hit an alarm.
        seed: of the histories.

    Returns:
        A point for each period.

    Raises:
        ValueError: the baseline has fewer than two patients, or a rate is not in (0, 1).
    """
    if baseline.n_patients < 2:
        raise ValueError(f"the baseline has {baseline.n_patients} patients, expected 2 or more")
    if not all(0 < rate < 1 for rate in rates):
        raise ValueError("a rate is not in (0, 1)")
    rising = np.asarray(upward, dtype=bool)
    source = _BaselineSums.of(_steadied(baseline, np.asarray(steady, dtype=np.float64)))
    rng = np.random.default_rng([seed, 0x77])
    n = int(np.clip(np.ceil(2 * _TAIL / min(rates, default=1.0)), N_HISTORIES, _MOST_HISTORIES))
    reference = source.draw(source.n_patients, n, rng).means
    simulated, observed = np.zeros_like(reference), np.zeros(len(rising))
    points = []
    for period, rate in zip(periods, rates, strict=True):
        drawn = source.draw(period.n_patients, n, rng)
        away = source.deviations(drawn, reference) * source.correction
        simulated = _averaged(simulated, away)
        own = source.deviations(_DrawnSums.of(period), source.means)
        observed = _averaged(observed, own)
        jump, jump_limits = _limits(_directed(away, rising), rate / 2)
        drift, drift_limits = _limits(_directed(simulated, rising), rate / 2)
        known = np.isfinite(own)
        point = ChartPoint(
            deviation=own,
            drift=np.where(known, observed, np.nan),
            jump_limits=np.where(known, jump_limits, np.nan),
            drift_limits=np.where(known, drift_limits, np.nan),
            jumps=known & (_directed(own, rising) > jump_limits),
            drifts=known & (_directed(observed, rising) > drift_limits),
        )
        points.append(point)
        if point.alarm:
            simulated, observed = np.zeros_like(reference), np.zeros(len(rising))
        elif (ended := jump | drift).any() and not ended.all():
            heirs = rng.choice(np.flatnonzero(~ended), int(ended.sum()))
            simulated[ended], reference[ended] = simulated[heirs], reference[heirs]
    return points


@dataclass(frozen=True)
class _DrawnSums:
    """(B, Q) sums of B draws of patients: images, values, and squared numbers of images."""

    images: Float
    total: Float
    images_squared: Float

    @classmethod
    def of(cls, sums: PatientSums) -> "_DrawnSums":
        return cls(sums.images.sum(axis=0), sums.total.sum(axis=0), (sums.images**2).sum(axis=0))

    @property
    def means(self) -> Float:
        return _ratio(self.total, self.images)


@dataclass(frozen=True)
class _BaselineSums:
    """A baseline from which patients are drawn, with the variances (Q,) between and within its patients."""

    sums: PatientSums
    means: Float
    between: Float
    within: Float

    @classmethod
    def of(cls, sums: PatientSums) -> "_BaselineSums":
        m, total = sums.images, sums.images.sum(axis=0)
        n_groups, means = (m > 0).sum(axis=0), sums.means
        inside = np.maximum(sums.squares.sum(axis=0) - _filled(_ratio(sums.total**2, m)).sum(axis=0), 0)
        across = (m * _filled(_ratio(sums.total, m) - means) ** 2).sum(axis=0)
        within, mean_square = _filled(_ratio(inside, total - n_groups)), _filled(_ratio(across, n_groups - 1))
        size = _ratio(total - _ratio((m**2).sum(axis=0), total), n_groups - 1)
        between = np.maximum(_filled(_ratio(mean_square - within, size)), 0)
        return cls(sums, means, between, within)

    @property
    def n_patients(self) -> int:
        return self.sums.n_patients

    @property
    def correction(self) -> float:
        """Factor by which a resampled deviation is too small."""
        return float(np.sqrt(self.n_patients / (self.n_patients - 1)))

    def draw(self, size: int, n: int, rng: np.random.Generator) -> _DrawnSums:
        """Draw ``size`` patients with replacement, ``n`` times."""
        table = np.hstack([self.sums.images, self.sums.total, self.sums.images**2])
        found, step = [], max(1, _CHUNK // max(size, self.n_patients))
        for at in range(0, n, step):
            k = min(step, n - at)
            chosen = rng.integers(self.n_patients, size=(k, size)) + self.n_patients * np.arange(k)[:, None]
            counts = np.bincount(chosen.ravel(), minlength=k * self.n_patients).reshape(k, -1)
            found.append(counts.astype(np.float64) @ table)
        return _DrawnSums(*np.split(np.vstack(found), 3, axis=1))

    def deviations(self, drawn: _DrawnSums, reference: Float) -> Float:
        """Return (Q,) or (B, Q) differences from the reference means over their standard errors."""
        own = self._variance(drawn) + self._variance(_DrawnSums.of(self.sums))
        difference = drawn.means - reference
        return np.where(np.abs(difference) < 1e-12, 0.0, difference) / np.maximum(np.sqrt(own), 1e-9)

    def _variance(self, drawn: _DrawnSums) -> Float:
        return _ratio(self.between * drawn.images_squared + self.within * drawn.images, drawn.images**2)


def _steadied(sums: PatientSums, value: Float) -> PatientSums:
    """Add a patient with the mean number of images, all of them with the value; none where it is NaN."""
    wanted = np.isfinite(value)
    if not wanted.any():
        return sums
    images = np.where(wanted, sums.images.mean(axis=0), 0.0)
    held = np.where(wanted, value, 0.0)
    more = (images, images * held, images * held**2)
    parts = zip((sums.images, sums.total, sums.squares), more, strict=True)
    return PatientSums(*(np.vstack([old, new]) for old, new in parts))


def _limits(simulated: Float, rate: float) -> tuple[NDArray[np.bool_], Float]:
    """Return which of (B, Q) histories exceed the limits, and the (Q,) limits."""
    values = _filled(simulated)
    scale = np.maximum(np.quantile(values, _BALANCE, axis=0), 1e-6)
    largest = (values / scale).max(axis=1)
    limit = max(float(np.quantile(largest, 1 - rate, method="higher")), 1e-6)
    return largest > limit, scale * limit


def _averaged(before: Float, newest: Float) -> Float:
    """Return the moving average; a quantity that is absent from the newest period keeps it."""
    return np.where(np.isfinite(newest), (1 - SMOOTHING) * before + SMOOTHING * newest, before)


def _directed(values: Float, rising: NDArray[np.bool_]) -> Float:
    return np.where(rising, values, np.abs(values))


def _filled(values: Float) -> Float:
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _ratio(part: ArrayLike, whole: ArrayLike) -> Float:
    numerator, denominator = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0)
