"""Confidence intervals in closed form, and the record of a number with its interval.

All intervals are two-sided 95 % intervals. docs/explanation/intervals.md explains their use and coverage.
"""

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta, norm

from usvit.estimate import Estimate as Estimate
from usvit.metrics.support import FEW_GROUPS as FEW_GROUPS
from usvit.metrics.support import Support

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
Z = float(norm.ppf(1 - ALPHA / 2))

Interval = tuple[float, float]


def with_interval(
    value: float,
    ci95: Interval | None,
    *,
    method: str,
    n_groups: int,
    reason: str = "",
    p: float | None = None,
    support: Support | None = None,
) -> Estimate:
    """Create the estimate of a number.

    Args:
        value: the number.
        ci95: its interval; None requires a ``reason``.
        method: how the interval was, or would have been, computed.
        n_groups: the groups that the number rests on.
        reason: why there is no interval, or why another method was used.
        p: p-value in [0, 1], for a difference.
        support: the groups that the width of the interval is estimated from, if these are not ``n_groups`` equal
            groups: the groups of the rarer class, or the effective number of groups of unequal size.

    Returns:
        The estimate. Every interval has a warning if it is estimated from fewer than ``FEW_GROUPS`` effective groups.
    """
    if ci95 is None and not reason:
        raise ValueError("a missing interval needs a reason")
    warning = few_groups_warning(n_groups) if support is None else support.warning
    return Estimate(
        value=float(value),
        ci95=None if ci95 is None else (float(ci95[0]), float(ci95[1])),
        method=method,
        n_groups=int(n_groups),
        p=None if p is None else float(p),
        reason=reason or None,
        warning=None if ci95 is None else warning,
    )


def undefined(reason: str, n_groups: int) -> Estimate:
    """Create the Estimate of a number that cannot be computed: null with the reason."""
    return Estimate(value=None, ci95=None, reason=reason, n_groups=int(n_groups))


def few_groups_warning(n_groups: int) -> str | None:
    """Return a warning if there are too few groups (of equal size) for a reliable interval; otherwise None."""
    return Support(n_groups, n_groups).warning


def logit_interval(value: float, variance: float) -> Interval | None:
    """Compute a normal interval on the logit scale, transformed back: always within (0, 1), longer towards 1/2.

    Args:
        value: an estimate in (0, 1), such as an AUC.
        variance: its variance, > 0.

    Returns:
        (low, high); None for a value of 0 or 1 or a variance of 0.

    Source: Pepe (2003), The Statistical Evaluation of Medical Tests, section 5.2.4; the delta method.
    """
    if not 0 < value < 1 or not variance > 0:
        return None
    half = Z * np.sqrt(variance) / (value * (1 - value))
    return float(expit(logit(value) - half)), float(expit(logit(value) + half))


def clopper_pearson(successes: int, n: int) -> Interval | None:
    """Compute the exact interval of a proportion of independent cases; its coverage is at least 95 %, often more.

    Args:
        successes: 0 ... n.
        n: cases, independent of each other.

    Returns:
        (low, high) within [0, 1], low 0 for no success and high 1 for no failure; None for n = 0.

    Source: Clopper & Pearson (1934), Biometrika 26:404.
    """
    _check_counts(successes, n)
    if n == 0:
        return None
    low = 0.0 if successes == 0 else float(beta.ppf(ALPHA / 2, successes, n - successes + 1))
    high = 1.0 if successes == n else float(beta.ppf(1 - ALPHA / 2, successes + 1, n - successes))
    return low, high


def wilson(successes: int, n: int) -> Interval | None:
    """Compute the score interval of a proportion of independent cases; its coverage is 95 % on average.

    Args and returns as in ``clopper_pearson``.

    Source: Wilson (1927), JASA 22:209; recommended by Newcombe (1998), Statistics in Medicine 17:857, method 3.
    """
    _check_counts(successes, n)
    if n == 0:
        return None
    return effective_wilson(successes / n, n)


def effective_wilson(value: float, effective: float, *, quantile: float = Z) -> Interval:
    """Compute Wilson's interval of a share for an effective number of independent cases.

    Args:
        value: the share, in [0, 1].
        effective: number of independent cases with which the share would have its variance; need not be whole, > 0.
        quantile: of the normal distribution, or of Student's.

    Returns:
        (low, high) within [0, 1]; low is exactly 0 for a share of 0, and high exactly 1 for a share of 1.

    Source: Wilson (1927), JASA 22:209; for an effective number Franco, Little, Louis & Slud (2019), Journal of Survey
    Statistics and Methodology 7:334.
    """
    z2 = quantile**2
    middle = (value + z2 / (2 * effective)) / (1 + z2 / effective)
    half = quantile / (1 + z2 / effective) * np.sqrt(value * (1 - value) / effective + z2 / (4 * effective**2))
    # At the ends, the bound is exactly 0 or 1; rounding must not produce 1e-17 or 1 + 1e-16.
    low = 0.0 if value == 0 else max(middle - half, 0.0)
    high = 1.0 if value == 1 else min(middle + half, 1.0)
    return float(low), float(high)


def all_or_none_interval(value: float, n_independent: float, *, alpha: float = ALPHA) -> Interval | None:
    """Compute the interval of a share of exactly 0 or 1, whose estimated variance is 0.

    If the true share is p, n independent cases all succeed with probability p^n at most. The bound is the p for which
    this is 2.5 %: Clopper and Pearson's bound for n of n.

    Args:
        value: 0 or 1.
        n_independent: independent cases inside the data, such as the effective groups of a sensitivity; need not be
            whole.
        alpha: the level is 1 - alpha.

    Returns:
        (0, high) or (low, 1); None for another value or without cases.
    """
    if not n_independent > 0 or value not in (0.0, 1.0):
        return None
    low = float((alpha / 2) ** (1 / n_independent))
    return (low, 1.0) if value == 1 else (0.0, 1 - low)


def _check_counts(successes: int, n: int) -> None:
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes among {n} cases")
