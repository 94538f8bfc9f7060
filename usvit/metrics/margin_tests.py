"""Non-inferiority and equivalence of two models, from the interval of their difference and a margin stated beforehand.

A test that finds no difference does not show that two models perform alike: with few patients it finds none whatever
the truth is. These tests ask the other way round whether the data rule out a loss as large as the margin. Their
p-values are computed from the same limits as the interval, so p and interval always agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.optimize import brentq
from scipy.stats import t as student

from usvit.errors import UsvitError
from usvit.estimate import Difference
from usvit.metrics.intervals import ALPHA, Interval
from usvit.records import BothWays, EquivalenceClaim, Verdict

_EQUIVALENCE_ALPHA = 2 * ALPHA
"""Two one-sided tests at 5 % each correspond to the two-sided 90 % interval."""
_SMALLEST_P = 1e-12
NO_INTERVAL = "the difference has no interval"


class DifferenceLimits(Protocol):
    """A difference A minus B with its interval at any level."""

    @property
    def difference(self) -> float: ...

    def interval(self, alpha: float) -> Interval:
        """Return the two-sided interval of level 1 - alpha."""
        ...


@runtime_checkable
class ClosedLimits(DifferenceLimits, Protocol):
    """Limits whose p is known without a search among intervals."""

    def one_sided_p(self, boundary: float, *, above: bool) -> float:
        """Return the level at which the one-sided limit equals the boundary, as ``margin_tests.one_sided_p``."""
        ...


@dataclass(frozen=True)
class StudentLimits:
    """A difference with its standard error and the degrees of freedom of Student's t; infinite for a normal one."""

    difference: float
    error: float
    freedom: float

    @classmethod
    def of(cls, value: Difference) -> "StudentLimits | None":
        """Return the limits of a difference; None without an interval."""
        if value.value is None or value.ci95 is None or value.error is None or value.freedom is None:
            return None
        return cls(value.value, value.error, value.freedom)

    def interval(self, alpha: float) -> Interval:
        half = float(student.ppf(1 - alpha / 2, self.freedom)) * self.error
        return max(self.difference - half, -1.0), min(self.difference + half, 1.0)


def check_margin(margin: float) -> float:
    """Validate and return a margin of non-inferiority or equivalence.

    Raises:
        UsvitError: it is not a number above 0 and below 0.5.
    """
    if not 0 < margin < 0.5:
        sign = " The margin is the size of the loss, written without a sign." if margin < 0 else ""
        raise UsvitError(
            f"--margin {margin:g}: give a margin above 0 and below 0.5, such as 0.05.{sign} State it before the models "
            "are compared, and justify why such a difference would not matter."
        )
    return float(margin)


def non_inferiority(limits: DifferenceLimits | None, margin: float, *, reason: str = NO_INTERVAL) -> BothWays:
    """Decide whether A is non-inferior to B, and B to A, from the difference A minus B of a figure (more is better).

    A is non-inferior if the lower bound of the one-sided 97.5 % interval of the difference lies above minus the
    margin. This bound is the lower end of the two-sided 95 % interval, so the error of the claim is at most 2.5 % if
    the interval has its nominal coverage.

    Args:
        limits: of the difference; None if it has no interval.
        margin: in (0, 0.5).
        reason: why there are no limits.

    Returns:
        Bound, p and verdict of both directions. p is below 0.025 exactly if the verdict is non-inferior. Without an
        interval, bound and p are null with a reason, and non-inferiority is not shown.

    Raises:
        UsvitError: as ``check_margin``.

    Source: ICH E9 (1998), section 3.3.2; Piaggio et al. (2012), JAMA 308:2594 (CONSORT for non-inferiority); Obuchowski
    (1997), American Journal of Roentgenology 169:1015 (of AUCs).
    """
    check_margin(margin)
    if limits is None:
        none = Verdict(bound=None, p=None, verdict=_worded("non-inferior", False), reason=reason)
        return BothWays(margin=margin, a_vs_b=none, b_vs_a=none)
    low, high = limits.interval(ALPHA)

    def judged(bound: float, p: float) -> Verdict:
        return Verdict(bound=float(bound), p=p, verdict=_worded("non-inferior", bound > -margin))

    return BothWays(
        margin=margin,
        a_vs_b=judged(low, one_sided_p(limits, -margin, above=True)),
        b_vs_a=judged(-high, one_sided_p(limits, margin, above=False)),
    )


def equivalence(limits: DifferenceLimits | None, margin: float, *, reason: str = NO_INTERVAL) -> EquivalenceClaim:
    """Decide whether A and B are equivalent, by two one-sided tests at 5 % each.

    They are equivalent if the whole two-sided 90 % interval of the difference lies between minus the margin and the
    margin. The error of the claim is at most 5 %.

    Args:
        limits, margin, reason: as ``non_inferiority``.

    Returns:
        p is the larger of the two one-sided p-values, and below 0.05 exactly if the verdict is equivalent. Without an
        interval, ci90 and p are null with a reason.

    Raises:
        UsvitError: as ``check_margin``.

    Source: Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15:657 (two one-sided tests).
    """
    check_margin(margin)
    if limits is None:
        verdict = _worded("equivalent", False)
        return EquivalenceClaim(margin=margin, ci90=None, p=None, verdict=verdict, reason=reason)
    low, high = limits.interval(_EQUIVALENCE_ALPHA)
    p = max(one_sided_p(limits, -margin, above=True), one_sided_p(limits, margin, above=False))
    inside = low > -margin and high < margin
    return EquivalenceClaim(margin=margin, ci90=(float(low), float(high)), p=p, verdict=_worded("equivalent", inside))


def one_sided_p(limits: DifferenceLimits, boundary: float, *, above: bool) -> float:
    """Compute the one-sided p of the hypothesis that the true difference is not above (or not below) a boundary.

    It is the level at which the one-sided limit equals the boundary.

    Args:
        limits: of the difference.
        boundary: a difference in (-1, 1).
        above: whether the claim is that the difference lies above the boundary; otherwise below.
    """
    if isinstance(limits, ClosedLimits):
        return float(np.clip(limits.one_sided_p(boundary, above=above), _SMALLEST_P, 1.0))

    def lower(p: float) -> float:
        """Compute the limit of level 1 - p, mirrored if the claim is below; it ascends with p."""
        low, high = limits.interval(2 * min(p, 1 - p))
        return (low if p <= 0.5 else high) if above else (-high if p <= 0.5 else -low)

    return _crossing_p(lower, boundary if above else -boundary)


def two_sided_p(limits: DifferenceLimits) -> float:
    """Compute the two-sided p of no difference: the level at which the interval ends at 0."""
    p = one_sided_p(limits, 0.0, above=limits.difference > 0)
    return min(1.0, 2 * p)


def _crossing_p(lower: Callable[[float], float], boundary: float) -> float:
    """Find the p in (0, 1) at which an ascending limit equals the boundary."""
    if lower(_SMALLEST_P) >= boundary:
        return _SMALLEST_P
    if lower(1 - _SMALLEST_P) <= boundary:
        return 1.0
    odds = brentq(lambda one: lower(_p_of(one)) - boundary, *_ENDS, xtol=1e-10)
    return _p_of(float(odds))


_ENDS = (float(np.log(_SMALLEST_P)), -float(np.log(_SMALLEST_P)))


def _p_of(odds: float) -> float:
    return float(1 / (1 + np.exp(-odds)))


def _worded(claim: str, shown: bool) -> str:
    return claim if shown else f"not shown to be {claim}"
