"""Do the probabilities mean what they say? Reliability, calibration error, slope and intercept, Brier score."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from usvit.metrics.bootstrap import N_RESAMPLES
from usvit.metrics.calibration_intervals import debiased_ece, logistic_errors, student_interval
from usvit.metrics.checks import check_positive, check_prob, check_score, group_codes
from usvit.metrics.intervals import undefined, with_interval
from usvit.metrics.points import Value, decide
from usvit.metrics.proportions import ShareInterval, check_binary, count_groups, point, share
from usvit.metrics.rows import Rows, log_odds, rows_of

N_BINS = 10
ONE_GROUP = "there is but one group"


@dataclass(frozen=True)
class Bin:
    """Images of similar probability."""

    n_images: int
    n_groups: int
    lowest: float
    highest: float
    mean_prob: float
    share: Value
    """How many of them are positive."""


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram, and the one number that sums it up."""

    bins: tuple[Bin, ...]
    """Ascending in probability; never more than were asked for, fewer where ties fill several at once."""
    n_bins_asked: int
    ece: Value
    """In [0, 1]; its method states the bins. Chance alone makes it positive."""
    ece_debiased: Value
    """The same without what chance adds, with its interval (``calibration_intervals.debiased_ece``)."""
    ece_noise_floor: float | None
    """The mean of ``ece`` had every bin been perfectly calibrated; None where there is no interval."""


@dataclass(frozen=True)
class Line:
    """Logistic recalibration: how the log-odds would have to be stretched and shifted."""

    slope: Value
    """1 is right, below 1 is over-confident, below 0 is wrong way round."""
    intercept: Value
    """Fitted together with the slope; 0 is right."""
    in_the_large: Value
    """The intercept with the slope held at 1; above 0: positives are more frequent than predicted."""


@dataclass(frozen=True)
class Brier:
    """The Brier score and its parts: score = reliability - resolution + uncertainty + within_bins."""

    score: Value
    reliability: float
    resolution: float
    uncertainty: float
    within_bins: float
    """What the bins blur: variance of the probabilities within them less twice their covariance with the outcome."""
    skill: Value
    """1 - score / uncertainty: above 0 is better than the share of positives said of every image."""


def equal_mass_bins(prob: ArrayLike, n_bins: int = N_BINS) -> np.ndarray:
    """Which bin each probability falls into: equally many images in each, as far as ties allow.

    Equal probabilities always share a bin: all go where the middle one of them would. So the result does
    not depend on the order of the images, and n different probabilities whose number ``n_bins``
    divides are dealt exactly evenly.

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
    twice_middle = 2 * count.cumsum() - count  # in whole numbers, so that rounding decides nothing
    level_bin = twice_middle * n_bins // (2 * count.sum())
    return np.unique(level_bin, return_inverse=True)[1][where]


def reliability(
    positive: ArrayLike,
    prob: ArrayLike,
    group: ArrayLike | None = None,
    *,
    n_bins: int = N_BINS,
    interval: ShareInterval | None = None,
) -> Reliability:
    """Predicted against observed frequency in equal-mass bins, and the expected calibration error.

    The ECE is the mean over images of |observed share - mean probability| of their bin. It is never
    negative, so chance alone makes it positive, the more so the more bins: compare only equal bins and equal n.
    The debiased one takes off what chance adds; only this one has an interval.

    Args:
        positive: (n,) bool, n >= 1.
        prob: (n,) float in [0, 1], of the positive class.
        group: (n,) the patient of each image; None: every image is a group of its own.
        n_bins: how many bins to aim at.
        interval: gives each bin's share its ``ci95``.

    Returns:
        Defined for one image and one class too.

    Raises:
        ValueError: see ``proportions.check_binary`` and ``equal_mass_bins``.

    Source: DeGroot & Fienberg (1983), The Statistician 32:12; Naeini et al. (2015), AAAI; equal mass as in Nixon et al.
    (2019), arXiv 1904.01685.
    """
    reference, p, n_groups = check_binary(positive, prob, group)
    groups = np.arange(len(p)) if group is None else np.asarray(group)
    which = equal_mass_bins(p, n_bins)
    bins, error = [], 0.0
    for k in range(which.max() + 1):
        at = which == k
        observed = share(reference[at], groups[at], of="images", interval=interval)
        mean = float(np.clip(p[at].mean(), p[at].min(), p[at].max()))  # a mean's rounding must not leave its own bin
        error += at.sum() / len(p) * abs(observed["value"] - mean)
        bins.append(Bin(int(at.sum()), observed["n_groups"], float(p[at].min()), float(p[at].max()), mean, observed))
    left = "" if len(bins) == n_bins else f" ({len(bins)} left: ties or few images)"
    said = f"{n_bins} equal-mass bins{left}"
    found = debiased_ece(reference - p, which, group_codes(groups, len(p))[0])
    debiased = with_interval(
        found.value,
        found.ci95,
        method=f"{said}, debiased; test inversion bootstrap of groups, {N_RESAMPLES} resamples",
        n_groups=n_groups,
        reason="" if found.ci95 else ONE_GROUP if n_groups < 2 else "every resample gives the same value",
    )
    floor = None if found.ci95 is None else found.noise_floor
    return Reliability(tuple(bins), n_bins, point(min(error, 1.0), n_groups, said), debiased, floor)


def top_label_reliability(
    label: ArrayLike,
    prob: ArrayLike,
    group: ArrayLike | None = None,
    *,
    n_bins: int = N_BINS,
    interval: ShareInterval | None = None,
) -> Reliability:
    """Reliability of the decided class: is a decision made with 80 % right in 80 % of images?

    Args:
        label: (n,) int, index of the reference class.
        prob: (n, K) float in [0, 1]; the decision is that of ``points.decide``.
        group: see ``reliability``.
        n_bins: see ``reliability``.
        interval: see ``reliability``.

    Raises:
        ValueError: see ``checks.check_prob`` and ``reliability``.

    Source: Guo et al. (2017), ICML, eq. 3 (there with 15 bins of equal width).
    """
    codes, p = check_prob(label, prob)
    return reliability(decide(p) == codes, p.max(axis=1), group, n_bins=n_bins, interval=interval)


def calibration_line(positive: ArrayLike, odds: ArrayLike, group: ArrayLike | None = None) -> Line:
    """Slope and intercept of logit P(positive) = intercept + slope * log-odds, by maximum likelihood.

    Args:
        positive: (n,) bool, n >= 1.
        odds: (n,) finite float, the predicted log-odds (``rows.log_odds``).
        group: (n,) the patient of each image; None: every image is a group of its own.

    Returns:
        Each with an interval that counts groups (``calibration_intervals.logistic_errors``). All three undefined where
        a class is absent. Slope and intercept also where all predictions are
        equal, or where a threshold separates the classes perfectly, in either direction: the likelihood then
        grows without bound. ``in_the_large`` stands there all the same.

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
    # At these ends every image's shifted probability lies below, and above, the share of positives.
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
) -> list[Value]:
    errors = logistic_errors(design, reference, linear, code)
    method = f"{how}; clustered sandwich, t with {n_groups - 1} degrees of freedom"
    if errors is None:
        why = ONE_GROUP if n_groups < 2 else "the variance cannot be computed from these predictions"
        return [with_interval(value, None, method=method, n_groups=n_groups, reason=why) for value in values]
    return [
        with_interval(value, student_interval(value, float(error), n_groups), method=method, n_groups=n_groups)
        for value, error in zip(values, errors, strict=True)
    ]


def no_slope(reference: np.ndarray, x: np.ndarray) -> str | None:
    """Why logistic regression of (n,) bool on one (n,) covariate has no finite solution; None where it has one.

    Both classes must be there. Source: Albert & Anderson (1984), Biometrika 71:1.
    """
    above, below = x[reference], x[~reference]
    if no_spread(x):
        return "all predictions are equal"
    if below.max() <= above.min():
        return "the predictions separate the classes perfectly: the slope has no upper bound"
    if above.max() <= below.min():
        return "the predictions separate the classes perfectly, the wrong way round: the slope has no lower bound"
    return None


def no_spread(x: np.ndarray) -> bool:
    """Whether (n,) log-odds are one number, but for what the rounding of a softmax leaves."""
    return bool(np.ptp(x) <= 8 * np.finfo(np.float64).eps * max(1.0, float(np.abs(x).max())))


def logistic_fit(x: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """(slope, intercept) of maximum likelihood for targets in [0, 1]; a finite solution must exist.

    A target between 0 and 1 counts as that share of a positive and the rest of a negative image.
    """
    mean, width = x.mean(), np.ptp(x)
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    scaled = ((x - mean) / width)[:, None]
    weight = np.concatenate([target, 1 - target])
    outcome = np.repeat([1, 0], len(x))
    model.fit(np.concatenate([scaled, scaled])[weight > 0], outcome[weight > 0], sample_weight=weight[weight > 0])
    slope = float(model.coef_[0, 0] / width)
    return slope, float(model.intercept_[0] - slope * mean)


def brier(positive: ArrayLike, prob: ArrayLike, group: ArrayLike | None = None, *, n_bins: int = N_BINS) -> Brier:
    """Mean squared error of the probability of one class, in [0, 1], taken apart exactly.

    Args:
        positive: (n,) bool, n >= 1.
        prob: (n,) float in [0, 1].
        group: (n,) the patient of each image; None: every image is a group of its own.
        n_bins: equal-mass bins of the decomposition. With as many bins as images ``within_bins`` is 0
            and the rest is Murphy's decomposition.

    Returns:
        ``skill`` is undefined where a class is absent, since then the uncertainty is 0.

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
    return Brier(
        score=point(score, n_groups),
        reliability=float((count * (mean_p - mean_y) ** 2).sum() / len(p)),
        resolution=float((count * (mean_y - base) ** 2).sum() / len(p)),
        uncertainty=uncertainty,
        within_bins=float((off_p**2 - 2 * off_p * off_y).mean()),
        skill=point(1 - score / uncertainty, n_groups)
        if uncertainty
        else undefined(f"no {'negative' if base else 'positive'} image", n_groups),
    )


def calibration(table: pd.DataFrame, *, n_bins: int = N_BINS, interval: ShareInterval | None = None) -> dict[str, Any]:
    """Calibration of a run's test images: pooled and by fold, of each class against the rest and of the decided class.

    Log-odds come from the logits where the table has them; else from the probabilities, in which 0 is read
    as ``rows.LOWEST_PROB``.

    Args:
        table: a predictions table; only its rows of part test count.
        n_bins: equal-mass bins; the folds use as many as the pooled images.
        interval: gives each bin's share its ``ci95``.

    Returns:
        What JSON can hold: {"n_bins", "pooled": C, "folds": [C with "fold"]}, where C is {"n_images",
        "n_groups", "brier" (half the sum over the K classes, in [0, 1], the binary score for two), "top_label":
        Reliability, "classes": {name: {"reliability", "slope", "intercept", "in_the_large", "brier"}}}.

    Raises:
        UsvitError: see ``rows.rows_of``.
        ValueError: see ``equal_mass_bins``.
    """
    rows = rows_of(table, "test")
    return {
        "n_bins": n_bins,
        "pooled": calibration_of(rows, n_bins=n_bins, interval=interval),
        "folds": [
            {"fold": int(fold), **calibration_of(rows[rows.fold == fold], n_bins=n_bins, interval=interval)}
            for fold in np.unique(rows.fold)
        ],
    }


def calibration_of(rows: Rows, *, n_bins: int = N_BINS, interval: ShareInterval | None = None) -> dict[str, Any]:
    """The C of ``calibration``, of n >= 1 images."""
    hit = np.eye(len(rows.classes))[rows.label]  # (n, K)
    classes = {}
    for k, name in enumerate(rows.classes):
        reference, prob = rows.label == k, rows.prob[:, k]
        line = calibration_line(reference, log_odds(rows.scores, k), rows.group)
        classes[name] = {
            "reliability": asdict(reliability(reference, prob, rows.group, n_bins=n_bins, interval=interval)),
            **asdict(line),
            "brier": asdict(brier(reference, prob, rows.group, n_bins=n_bins)),
        }
    top = top_label_reliability(rows.label, rows.prob, rows.group, n_bins=n_bins, interval=interval)
    return {
        "n_images": len(rows),
        "n_groups": rows.n_groups,
        "brier": point(float(((rows.prob - hit) ** 2).sum(axis=1).mean() / 2), rows.n_groups),
        "top_label": asdict(top),
        "classes": classes,
    }
