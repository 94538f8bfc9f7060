"""Calibration of probabilities: reliability diagram, calibration error, slope and intercept, Brier score."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, logit, logsumexp
from sklearn.linear_model import LogisticRegression

from usvit.estimate import Estimate
from usvit.metrics.basic import decide
from usvit.metrics.bootstrap import N_RESAMPLES
from usvit.metrics.calibration_intervals import debiased_ece, logistic_errors, student_interval
from usvit.metrics.checks import check_positive, check_prob, check_score, group_codes
from usvit.metrics.intervals import undefined, with_interval
from usvit.metrics.proportions import ShareInterval, check_binary, count_groups, point, share
from usvit.metrics.support import rarest
from usvit.records import BinRecord, BrierParts, ReliabilityRecord

N_BINS = 10
LOWEST_PROB = float(np.finfo(np.float64).eps)
"""A probability of 0 is replaced by this before a logarithm is taken; the log loss has the same bound."""
ONE_GROUP = "there is only one group"


@dataclass(frozen=True)
class Line:
    """Logistic recalibration: slope and intercept that would calibrate the log-odds."""

    slope: Estimate
    """1 is perfect, below 1 is over-confident, below 0 is inverted."""
    intercept: Estimate
    """Fitted together with the slope; 0 is perfect."""
    in_the_large: Estimate
    """The intercept with the slope held at 1; above 0: positives are more frequent than predicted."""


def equal_mass_bins(prob: ArrayLike, n_bins: int = N_BINS) -> np.ndarray:
    """Assign each probability to a bin, with equally many images in each bin as far as ties allow.

    Equal probabilities share a bin: the one of their middle element. The result therefore does not depend on the
    order of the images. n distinct probabilities are divided exactly evenly if ``n_bins`` divides n.

    Args:
        prob: (n,) finite float.
        n_bins: at least 1.

    Returns:
        (n,) int from 0, ascending with the probability, without gaps.

    Raises:
        ValueError: ``n_bins`` is below 1.
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, not {n_bins}")
    _, where, count = np.unique(np.asarray(prob, dtype=np.float64), return_inverse=True, return_counts=True)
    twice_middle = 2 * count.cumsum() - count  # in integers, so that rounding has no effect
    level_bin = twice_middle * n_bins // (2 * count.sum())
    return np.unique(level_bin, return_inverse=True)[1][where]


def reliability(
    positive: ArrayLike,
    prob: ArrayLike,
    group: ArrayLike | None = None,
    *,
    n_bins: int = N_BINS,
    interval: ShareInterval | None = None,
) -> ReliabilityRecord:
    """Compute predicted and observed frequency in equal-mass bins, and the expected calibration error (ECE).

    The ECE is the mean over images of |observed share - mean probability| of their bin. It is never
    negative, so chance alone makes it positive, more so with more bins: compare it only for equal bins and equal n.
    The debiased error removes the part that chance adds; only the debiased error has an interval.

    Args:
        positive: (n,) bool, n >= 1.
        prob: (n,) float in [0, 1], of the positive class.
        group: (n,) the patient of each image; None: every image is a group of its own.
        n_bins: requested number of bins.
        interval: gives each bin's share its ``ci95``.

    Returns:
        Also defined for one image and for one class.

    Raises:
        ValueError: see ``proportions.check_binary`` and ``equal_mass_bins``.

    Source: DeGroot & Fienberg (1983), The Statistician 32:12; Naeini et al. (2015), AAAI; equal mass as in Nixon et al.
    (2019), arXiv 1904.01685.
    """
    reference, p, n_groups = check_binary(positive, prob, group)
    groups = np.arange(len(p)) if group is None else np.asarray(group)
    code = group_codes(groups, len(p))[0]
    which = equal_mass_bins(p, n_bins)
    bins, error = [], 0.0
    for k in range(which.max() + 1):
        at = which == k
        observed = share(reference[at], groups[at], of="images", interval=interval)
        mean = float(np.clip(p[at].mean(), p[at].min(), p[at].max()))  # a mean's rounding must not leave its own bin
        error += at.sum() / len(p) * abs(float(reference[at].mean()) - mean)
        bins.append(
            BinRecord(
                n_images=int(at.sum()),
                n_groups=group_codes(groups[at], int(at.sum()))[1],
                lowest=float(p[at].min()),
                highest=float(p[at].max()),
                mean_prob=mean,
                share=observed,
            )
        )
    left = "" if len(bins) == n_bins else f" ({len(bins)} left: ties or few images)"
    said = f"{n_bins} equal-mass bins{left}"
    found = debiased_ece(reference - p, which, code)
    debiased = with_interval(
        found.value,
        found.ci95,
        method=f"{said}, debiased; test inversion bootstrap of groups, {N_RESAMPLES} resamples",
        n_groups=n_groups,
        reason="" if found.ci95 else ONE_GROUP if n_groups < 2 else "every resample gives the same value",
    )
    return ReliabilityRecord(
        bins=bins,
        n_bins_asked=n_bins,
        ece=point(min(error, 1.0), n_groups, said),
        ece_debiased=debiased,
        ece_noise_floor=None if found.ci95 is None else found.noise_floor,
    )


def top_label_reliability(
    label: ArrayLike,
    prob: ArrayLike,
    group: ArrayLike | None = None,
    *,
    n_bins: int = N_BINS,
    interval: ShareInterval | None = None,
) -> ReliabilityRecord:
    """Compute the reliability of the decided class: a decision made with 80 % should be correct in 80 % of images.

    Args:
        label: (n,) int, index of the reference class.
        prob: (n, K) float in [0, 1]; the decision is that of ``basic.decide``.
        group: see ``reliability``.
        n_bins: see ``reliability``.
        interval: see ``reliability``.

    Raises:
        ValueError: see ``checks.check_prob`` and ``reliability``.

    Source: Guo et al. (2017), ICML, eq. 3 (there with 15 bins of equal width).
    """
    codes, p = check_prob(label, prob)
    return reliability(decide(p) == codes, p.max(axis=1), group, n_bins=n_bins, interval=interval)


def log_odds(scores: np.ndarray, k: int) -> np.ndarray:
    """Compute (n,) log(p / (1 - p)) of class ``k`` with p = softmax(scores) from (n, K) scores.

    The scores are used because 1 - p of a confident network is 0 in float64.
    """
    others = np.delete(np.asarray(scores, dtype=np.float64), k, axis=1)
    return scores[:, k] - logsumexp(others, axis=1)


def calibration_line(positive: ArrayLike, odds: ArrayLike, group: ArrayLike | None = None) -> Line:
    """Fit slope and intercept of logit P(positive) = intercept + slope * log-odds by maximum likelihood.

    Args:
        positive: (n,) bool, n >= 1.
        odds: (n,) finite float, the predicted log-odds (``log_odds``).
        group: (n,) the patient of each image; None: every image is a group of its own.

    Returns:
        Each with an interval that counts groups (``calibration_intervals.logistic_errors``). All three are undefined
        if a class is absent. Slope and intercept are also undefined if all predictions are equal, or if a threshold
        separates the classes perfectly in either direction, because the likelihood then grows without bound;
        ``in_the_large`` is defined in these cases.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.check_score``.

    Source: Cox (1958), Biometrika 45:562; Van Calster et al. (2019), BMC Medicine 17:230.
    """
    reference = check_positive(positive)
    x = check_score(odds, len(reference))
    n_groups = count_groups(group, len(x))
    if reference.all() or not reference.any():
        none = undefined(f"no {'negative' if reference.all() else 'positive'} image", n_groups)
        return Line(none, none, none)

    code = np.arange(len(x)) if group is None else group_codes(group, len(x))[0]
    # At these ends, the shifted probability of every image lies below, and above, the share of positives.
    base = reference.mean()
    ends = logit(base) - x.max() - 1, logit(base) - x.min() + 1
    shift = brentq(lambda a: expit(a + x).mean() - base, *ends, xtol=1e-12)
    ones = np.ones((len(x), 1))
    (in_the_large,) = _with_errors([shift], ones, reference, shift + x, code, n_groups, "maximum likelihood, slope 1")
    if reason := no_slope(reference, x):
        return Line(undefined(reason, n_groups), undefined(reason, n_groups), in_the_large)
    slope, intercept = logistic_fit(x, reference.astype(np.float64))
    design = np.concatenate([x[:, None], ones], axis=1)
    found = _with_errors(
        [slope, intercept], design, reference, intercept + slope * x, code, n_groups, "maximum likelihood"
    )
    return Line(found[0], found[1], in_the_large)


def _with_errors(
    values: list[float],
    design: np.ndarray,
    reference: np.ndarray,
    linear: np.ndarray,
    code: np.ndarray,
    n_groups: int,
    how: str,
) -> list[Estimate]:
    errors = logistic_errors(design, reference, linear, code)
    method = f"{how}; clustered sandwich, t with {n_groups - 1} degrees of freedom"
    if errors is None:
        why = ONE_GROUP if n_groups < 2 else "the variance cannot be computed from these predictions"
        return [with_interval(value, None, method=method, n_groups=n_groups, reason=why) for value in values]
    support = rarest(reference.astype(np.int64), code, {1: "positive images", 0: "negative images"})
    return [
        with_interval(
            value, student_interval(value, float(error), n_groups), method=method, n_groups=n_groups, support=support
        )
        for value, error in zip(values, errors, strict=True)
    ]


def no_slope(reference: np.ndarray, x: np.ndarray) -> str | None:
    """Return why logistic regression of (n,) bool on one (n,) covariate has no finite solution; None if it has one.

    Both classes must occur. Source: Albert & Anderson (1984), Biometrika 71:1.
    """
    above, below = x[reference], x[~reference]
    if no_spread(x):
        return "all predictions are equal"
    if below.max() <= above.min():
        return "the predictions separate the classes perfectly: the slope has no upper bound"
    if above.max() <= below.min():
        return "the predictions separate the classes perfectly but inversely: the slope has no lower bound"
    return None


def no_spread(x: np.ndarray) -> bool:
    """Return whether (n,) log-odds are all equal up to the rounding of a softmax."""
    return bool(np.ptp(x) <= 8 * np.finfo(np.float64).eps * max(1.0, float(np.abs(x).max())))


def logistic_fit(x: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """Fit (slope, intercept) by maximum likelihood for targets in [0, 1]; a finite solution must exist.

    A target between 0 and 1 counts as that fraction of a positive image and the rest of a negative image.
    """
    mean, width = x.mean(), np.ptp(x)
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    scaled = ((x - mean) / width)[:, None]
    weight = np.concatenate([target, 1 - target])
    outcome = np.repeat([1, 0], len(x))
    model.fit(np.concatenate([scaled, scaled])[weight > 0], outcome[weight > 0], sample_weight=weight[weight > 0])
    slope = float(model.coef_[0, 0] / width)
    return slope, float(model.intercept_[0] - slope * mean)


def brier(positive: ArrayLike, prob: ArrayLike, group: ArrayLike | None = None, *, n_bins: int = N_BINS) -> BrierParts:
    """Compute the mean squared error of the probability of one class, in [0, 1], with its exact decomposition.

    Args:
        positive: (n,) bool, n >= 1.
        prob: (n,) float in [0, 1].
        group: (n,) the patient of each image; None: every image is a group of its own.
        n_bins: equal-mass bins of the decomposition. With as many bins as images ``within_bins`` is 0
            and the rest is Murphy's decomposition.

    Returns:
        ``skill`` is undefined if a class is absent, because the uncertainty is then 0.

    Raises:
        ValueError: see ``proportions.check_binary`` and ``equal_mass_bins``.

    Source: Murphy (1973), J. Applied Meteorology 12:595; within-bin terms: Stephenson, Coelho & Jolliffe (2008),
    Weather and Forecasting 23:752.
    """
    reference, p, n_groups = check_binary(positive, prob, group)
    y = reference.astype(np.float64)
    which = equal_mass_bins(p, n_bins)
    count = np.bincount(which)
    mean_p, mean_y = np.bincount(which, p) / count, np.bincount(which, y) / count
    off_p, off_y = p - mean_p[which], y - mean_y[which]
    score, base = float(((p - y) ** 2).mean()), y.mean()
    uncertainty = float(base * (1 - base))
    return BrierParts(
        score=point(score, n_groups),
        reliability=float((count * (mean_p - mean_y) ** 2).sum() / len(p)),
        resolution=float((count * (mean_y - base) ** 2).sum() / len(p)),
        uncertainty=uncertainty,
        within_bins=float((off_p**2 - 2 * off_p * off_y).mean()),
        skill=point(1 - score / uncertainty, n_groups)
        if uncertainty
        else undefined(f"no {'negative' if base else 'positive'} image", n_groups),
    )
