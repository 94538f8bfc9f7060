"""Repeatability: how far several measurements of one thing differ, with intervals that count patients.

Every figure here is a function of sums over patients (groups of dependent images). Leaving out one patient subtracts
its sums, so the jackknife over patients costs one pass, and its interval is valid however the images of a patient
depend on each other. The spread between things is estimated from pairs of measurements of different patients only.
An ordinary analysis of variance, which takes the images of one patient as independent, underestimates it.

With one thing per patient and equally many measurements of each, the point estimates are those of the analysis of
variance: ICC(1,1) for repeats without an order, ICC(2,1) for pairs.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import f as f_distribution
from scipy.stats import norm
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.checks import check_score, group_codes
from usvit.metrics.intervals import ALPHA, undefined, with_interval
from usvit.metrics.proportions import clustered_share
from usvit.metrics.support import Support, effective_groups, satterthwaite_freedom
from usvit.records import AgreementRecord

METHOD = "jackknife over groups"
_F_METHOD = "F distribution, on the effective number of groups"
_NO_SPREAD = "the scores of repeats differ in one group at most, so that no spread between groups can be estimated"
_TOO_FEW = "the interval needs at least three groups"
ROUNDING = 1e-12
_SMALLEST_ROOT = 0.1
"""Below this lower end of a cube root, the interval on the logarithmic scale is used: the variance is hardly known."""
LIMIT = float(norm.ppf(0.975))
"""Standard deviations from the bias to a limit of agreement: 95 % of normally distributed differences lie between."""

Float = NDArray[np.float64]


def unordered_repeats(value: ArrayLike, thing: ArrayLike, group: ArrayLike) -> AgreementRecord:
    """Compute the repeatability of measurements that have no order, such as copies of one frame.

    The model is a one-way analysis of variance with random effects: value = mean + thing + error. There is no bias, and
    the limits of agreement are those of the difference of two measurements of one thing, which has the mean 0.

    Args:
        value: (n,) finite measurements.
        thing: (n,) int or str, what was measured; each at least twice, and in one group only.
        group: (n,) int or str, the patient.

    Raises:
        ValueError: lengths differ, a value is not finite, a thing was measured once or lies in two groups.

    Source: Bland & Altman (1996), BMJ 313:744 (s_w, repeatability coefficient); Bland & Altman (2007), Journal of
    Biopharmaceutical Statistics 17:571 (variance components for several measurements of one thing); Shrout & Fleiss
    (1979), Psychological Bulletin 86:420, ICC(1,1).
    """
    code, n_groups, x = _checked(value, group)
    x = x - x.mean()  # all figures stay the same, and the sums of squares are accurate
    thing_code, n_things = group_codes(thing, len(x))
    size = np.bincount(thing_code)
    if (size < 2).any():
        raise ValueError(f"the thing at index {int((size[thing_code] < 2).argmax())} was measured once")
    of_thing = np.zeros(n_things, dtype=np.int64)
    of_thing[thing_code] = code
    if (of_thing[thing_code] != code).any():
        raise ValueError("a thing lies in two groups")
    mean = np.bincount(thing_code, x) / size
    sums = _Sums(code, n_groups)
    away = x - mean[thing_code]
    away[np.abs(away) <= ROUNDING * np.abs(x).max()] = 0.0  # of equal measurements, whose mean is rounded
    within = sums.of(away**2)
    freedom = np.bincount(of_thing, size - 1, n_groups)
    pieces = np.column_stack([within, freedom, sums.n, sums.of(x), sums.of(x**2), *sums.same(x, x)])

    def figures(total: Float) -> dict[str, Float]:
        ss, df, n, tx, qx, same_n, same_t, same_q = total.T
        error = _ratio(ss, df)
        spread = _ratio(n * qx - same_q - (tx**2 - same_t), n**2 - same_n)
        return {"log error": _log(error), "log total": _log(spread)}

    found = _Jackknife(pieces, figures, sums.n)
    width = LIMIT * np.sqrt(2)
    coefficient = found.root("log error", width)
    return AgreementRecord(
        icc_form="ICC(1,1)",
        bias=undefined("the repeats have no order", n_groups),
        within_sd=found.root("log error", 1.0),
        repeatability_coefficient=coefficient,
        lower_limit=_mirrored(coefficient),
        upper_limit=coefficient,
        icc=found.explained("log error", "log total", float(size.mean())),
    )


def paired_repeats(first: ArrayLike, second: ArrayLike, group: ArrayLike) -> AgreementRecord:
    """Compute the agreement of two measurements of each image, such as before and after a change.

    The standard deviation of the differences, and with it the limits of agreement, contains both the spread between
    patients and that between images of one patient. The repeatability coefficient and the ICC count the bias as error.

    Args:
        first, second: (n,) finite measurements of the same n images.
        group: (n,) int or str, the patient.

    Raises:
        ValueError: lengths differ, or a value is not finite.

    Source: Bland & Altman (2007), Journal of Biopharmaceutical Statistics 17:571, and Zou (2013), Statistical Methods
    in Medical Research 22:630 (limits with several images per patient, and their interval by the method of variance
    estimates recovery); Shrout & Fleiss (1979), Psychological Bulletin 86:420, ICC(2,1).
    """
    code, n_groups, x = _checked(first, group)
    y = check_score(second, len(x))
    middle = (x.mean() + y.mean()) / 2  # a common shift changes no figure, and the sums of squares are accurate
    x, y = x - middle, y - middle
    d, sums = y - x, _Sums(code, n_groups)
    pieces = np.column_stack(
        [
            *(sums.n, sums.of(x), sums.of(y), sums.of(x**2), sums.of(y**2), sums.of(d), sums.of(d**2)),
            *sums.same(x, x),
            *sums.same(y, y)[1:],
            *sums.same(d, d)[1:],
        ]
    )

    def figures(total: Float) -> dict[str, Float]:
        n, tx, ty, qx, qy, td, qd, same_n, same_tx, same_qx, same_ty, same_qy, same_td, same_qd = total.T
        pairs = n**2 - same_n  # ordered pairs of images of different patients
        square, cross = _ratio(n * qd - same_qd, pairs), _ratio(td**2 - same_td, pairs)
        own = [
            _ratio(n * q - same_q - (t**2 - same_t), pairs)
            for t, q, same_t, same_q in ((tx, qx, same_tx, same_qx), (ty, qy, same_ty, same_qy))
        ]
        return {
            "bias": _ratio(td, n),
            "log variance": _log(square - cross),
            "log error": _log(square / 2),
            "log total": _log((own[0] + own[1] + cross) / 2),
        }

    found = _Jackknife(pieces, figures, sums.n)
    return AgreementRecord(
        icc_form="ICC(2,1)",
        bias=found.plain("bias"),
        within_sd=found.root("log error", 1.0),
        repeatability_coefficient=found.root("log error", LIMIT * np.sqrt(2)),
        lower_limit=found.limit(-LIMIT),
        upper_limit=found.limit(LIMIT),
        icc=found.explained("log error", "log total", 2.0),
    )


def flip_rate(flipped: ArrayLike, group: ArrayLike) -> Estimate:
    """Compute the share of pairs whose decisions differ, with Wilson's interval for an effective number of pairs.

    Flips are rare and may gather in a few patients, who then determine the variance, so that Student's quantile has
    Satterthwaite's degrees of freedom. One or two flips do not show whether they gather: their interval is longer than
    that of five.

    Args:
        flipped: (n,) bool, n >= 1.
        group: (n,) int or str, the patient of each pair.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.group_codes``.
    """
    return clustered_share(flipped, group)


class _Sums:
    """Sums over the images of each group."""

    def __init__(self, code: NDArray[np.int64], n_groups: int):
        self._code, self._n_groups = code, n_groups
        self.n = np.bincount(code, minlength=n_groups).astype(np.float64)

    def of(self, values: Float) -> Float:
        return np.bincount(self._code, values, self._n_groups).astype(np.float64)

    def same(self, a: Float, b: Float) -> list[Float]:
        """Return per group the sums over its ordered pairs (i, j) of images, i = j included, of 1, a_i b_j and a_i b_i.

        Subtracted from the sums over all pairs, they leave the pairs of images of different groups.
        """
        return [self.n**2, self.of(a) * self.of(b), self.n * self.of(a * b)]


class _Jackknife:
    """Figures of all groups, and of all but each one."""

    def __init__(self, pieces: Float, figures: Callable[[Float], dict[str, Float]], n_images: Float):
        total = pieces.sum(axis=0)
        self._value = {name: float(one[0]) for name, one in figures(total[None]).items()}
        self._without = figures(total - pieces)
        self._support = Support(len(pieces), effective_groups(n_images))

    def covariance(self, a: str, b: str) -> float:
        """Return the jackknife covariance; NaN if a figure is undefined without some group."""
        one, other = self._without[a], self._without[b]
        n = len(one)
        with np.errstate(invalid="ignore"):
            return float((n - 1) / n * ((one - one.mean()) @ (other - other.mean())))

    def correlation(self, a: str, b: str) -> float:
        """Return the correlation of two figures; 0 if one of them does not vary."""
        square = self.covariance(a, a) * self.covariance(b, b)
        return float(np.clip(self.covariance(a, b) / np.sqrt(square), -1, 1)) if square > 0 else 0.0

    def quantile(self, name: str) -> float:
        """Return Student's quantile for a figure."""
        away = self._without[name] - self._without[name].mean()
        freedom = satterthwaite_freedom(away, self._support.effective)
        return float(student.ppf(1 - ALPHA / 2, freedom))

    def away(self, name: str) -> tuple[float, float] | None:
        """Return how far the ends of the interval of a figure lie below and above it; None if there is no interval.

        For the logarithm of a variance they follow from the cube root of the variance, which is nearly normal if the
        scores are (Wilson & Hilferty 1931): the interval is longer above. Its degrees of freedom are those of a
        chi-square with the same variance of the logarithm.
        """
        spread = self.covariance(name, name) if len(self._without[name]) >= 3 else np.nan
        if not (np.isfinite(spread) and np.isfinite(self._value[name])):
            return None
        half = self.quantile(name) * float(np.sqrt(max(spread, 0.0)))
        if not name.startswith("log"):
            return half, half
        middle = 1 - spread / 9
        if middle - half / 3 < _SMALLEST_ROOT:
            return half, half
        return 3 * float(np.log(middle + half / 3)), -3 * float(np.log(middle - half / 3))

    def plain(self, name: str) -> Estimate:
        value, away = self._value[name], self.away(name)
        return self._entry(value, None if away is None else (value - away[0], value + away[1]))

    def root(self, name: str, factor: float) -> Estimate:
        """Return ``factor`` times the square root of a variance whose logarithm is the figure."""
        value, away = self._value[name], self.away(name)
        ends = None if away is None else (_root(value - away[0], factor), _root(value + away[1], factor))
        return self._entry(_root(value, factor), ends)

    def explained(self, error: str, total: str, per_thing: float) -> Estimate:
        """Return 1 less the ratio of two variances whose logarithms are the figures, such as an ICC.

        An ICC of k measurements of each thing cannot lie below -1 / (k - 1). If the jackknife's interval does, which
        happens with few groups, the interval follows from the F distribution (``_f_interval``).
        """
        value = self._value[error] - self._value[total]
        if np.isnan(value):
            n = self._support.n_groups
            return undefined("there are no two groups to compare" if n < 2 else "all measurements are the same", n)
        one, other, ends = self.away(error), self.away(total), None
        if one is not None and other is not None:
            r = self.correlation(error, total)
            low = value - _joined(one[0], other[1], -r)
            high = value + _joined(one[1], other[0], -r)
            ends = (1 - float(np.exp(high)), 1 - float(np.exp(low)))
        icc, least = 1 - float(np.exp(value)), -1 / (per_thing - 1)
        if ends is None or ends[0] >= least:
            return self._entry(icc, ends)
        n, why = self._support.n_groups, f"the interval of the jackknife would reach below {least:.3g}"
        if icc <= least:
            why = f"{why}, the least possible value, as does the estimate"
            return with_interval(icc, None, method=METHOD, n_groups=n, reason=why)
        ends = _f_interval(icc, per_thing, self._support.effective)
        why = f"{why}, the least possible value"
        return with_interval(icc, ends, method=_F_METHOD, n_groups=n, reason=why, support=self._support)

    def limit(self, factor: float) -> Estimate:
        """Return the bias plus ``factor`` standard deviations, by the recovery of variance estimates."""
        bias, value = self._value["bias"], self._value["log variance"]
        limit = bias + _root(value, factor)
        of_bias, of_log, ends = self.away("bias"), self.away("log variance"), None
        if of_bias is not None and of_log is not None:
            r = self.correlation("bias", "log variance") * (1 if factor > 0 else -1)
            width = _root(value, abs(factor))
            shorter, longer = (
                width - _root(value - of_log[0], abs(factor)),
                _root(value + of_log[1], abs(factor)) - width,
            )
            down, up = (shorter, longer) if factor > 0 else (longer, shorter)
            ends = (limit - _joined(of_bias[0], down, r), limit + _joined(of_bias[1], up, r))
        return self._entry(limit, ends)

    def _entry(self, value: float, ends: tuple[float, float] | None) -> Estimate:
        n = self._support.n_groups
        if np.isnan(value):
            return undefined("there are no two groups to compare", n)
        reason = "" if ends is not None else _TOO_FEW if n < 3 else _NO_SPREAD
        return with_interval(value, ends, method=METHOD, n_groups=n, reason=reason, support=self._support)


def _f_interval(icc: float, per_thing: float, effective: float) -> tuple[float, float]:
    """Return the 95 % interval of an ICC that is greater than -1 / (k - 1), from k measurements of each thing.

    It is exact for ICC(1,1) of normally distributed scores if each group has one thing, measured equally often. With
    several things in a group, the effective number of groups stands for the number of things, and the interval is too
    long rather than too short.

    Source: Shrout & Fleiss (1979), Psychological Bulletin 86:420, the interval of ICC(1,1).
    """
    between, within = effective - 1, effective * (per_thing - 1)
    ratio = (1 + (per_thing - 1) * icc) / (1 - icc)
    low = ratio / f_distribution.ppf(1 - ALPHA / 2, between, within)
    high = ratio * f_distribution.ppf(1 - ALPHA / 2, within, between)
    return float((low - 1) / (low + per_thing - 1)), float((high - 1) / (high + per_thing - 1))


def _joined(one: float, other: float, r: float) -> float:
    """Return the distance of the end of a sum's interval from those of its two terms, which have the correlation r.

    Source: Zou & Donner (2008), Statistics in Medicine 27:1693 (method of variance estimates recovery).
    """
    return float(np.sqrt(max(one**2 + other**2 + 2 * r * one * other, 0.0)))


def _checked(value: ArrayLike, group: ArrayLike) -> tuple[NDArray[np.int64], int, Float]:
    x = np.asarray(value, dtype=np.float64)
    x = check_score(x, x.size)
    code, n_groups = group_codes(group, len(x))
    return code, n_groups, x


def _mirrored(one: Estimate) -> Estimate:
    assert one.value is not None
    return one.replace(value=0.0 - one.value, ci95=None if one.ci95 is None else (-one.ci95[1], -one.ci95[0]))


def _ratio(part: Float, whole: Float) -> Float:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)


def _log(values: Float) -> Float:
    """Natural logarithm; -inf for 0, also if rounding made it negative, and NaN stays."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(values, 0.0))


def _root(log_variance: float, factor: float) -> float:
    return factor * float(np.exp(log_variance / 2))
