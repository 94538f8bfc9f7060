"""The mean difference within folds of two models' AUCs on the same images, with its interval and test.

The interval and p come from the logits of both means (``LogitDifference``). ``difference_limits`` reads them back from
the Estimate, so that margins are tested with the limits of the interval.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from usvit.estimate import Difference, PairedAreas
from usvit.metrics.cross_validation import FoldMean, fold_mean, with_skipped_folds
from usvit.metrics.delong import NO_VARIANCE
from usvit.metrics.fold_figures import FoldFigure
from usvit.metrics.intervals import ALPHA, undefined, with_interval
from usvit.metrics.logit_difference import LogitDifference
from usvit.metrics.margin_tests import DifferenceLimits, StudentLimits

METHOD = "corrected clustered t on the logits of both AUCs (mean difference within folds)"
PLAIN_METHOD = "corrected clustered t (mean difference within folds)"
"""Used if one of the two means is 0 or 1, or does not vary, because it has no logit or no standard error."""
_AREAS = ("a", "b", "error_a", "error_b", "correlation")
"""Fields of ``LogitDifference`` that an Estimate holds as "areas"; it has "freedom" itself."""

Repeats = Sequence[Sequence[FoldFigure | None]]


def difference_within_folds(a: Repeats, b: Repeats, share: float, *, absent: str, n_groups: int) -> Difference:
    """Compute the mean over folds of model A's AUC minus model B's, with "p" (two-sided) and its interval.

    If there is an interval, "error" and "freedom" are the standard error and the degrees of freedom of the difference,
    and "areas" holds both means with their standard errors and correlation; ``difference_limits`` reads these keys.

    Args:
        a, b: for each repeat, the AUCs of the folds of either model on the same images; None if undefined.
        share: the training share of the difference, in [0, 1]. It is also used for the variances of the two means: with
            one factor for all three variances, the correlation of the means stays that of the groups' contributions.
            To first order the interval depends on the variance of the difference alone.
        absent: the reason if no fold of some repeat has a difference.
        n_groups: total number of groups, used if there is none.

    Source: after Nadeau & Bengio (2003), Machine Learning 52:239: the variance of a mean over folds is that of
    independent folds times a factor for the training images that they share; here (1 + share), at most 2. The interval
    as in ``LogitDifference``.
    """
    known = [
        [(one, other) for one, other in zip(*folds, strict=True) if one is not None and other is not None]
        for folds in zip(a, b, strict=True)
    ]
    mean_a, mean_b, mean = (
        fold_mean([[part(pair) for pair in folds] for folds in known])
        for part in (lambda pair: pair[0], lambda pair: pair[1], lambda pair: pair[0] - pair[1])
    )
    if mean is None or mean_a is None or mean_b is None:
        return Difference.of(undefined(absent, n_groups))
    variance, freedom = mean.variance_with(share)
    n_skipped = sum(len(folds) for folds in a) - sum(len(folds) for folds in known)
    if not variance > NO_VARIANCE:
        if np.isnan(variance):
            why, p = "the variance needs more groups than folds in each class", None
        else:
            why = "the models differ in no group, or equally in all groups, so the variance is 0"
            p = 1.0 if abs(mean.value) < 1e-12 else None
        value = with_interval(mean.value, None, method=METHOD, n_groups=mean.n_groups, reason=why, p=p)
        return with_skipped_folds(Difference.of(value), n_skipped)
    error = float(np.sqrt(variance))
    pair = _logits(mean_a, mean_b, variance, freedom, share)
    if pair is None:
        ends = StudentLimits(mean.value, error, freedom).interval(ALPHA)
        method, p = PLAIN_METHOD, 2 * float(student.sf(abs(mean.value) / error, freedom))
    else:
        ends, method, p = pair.interval(ALPHA), METHOD, pair.p
    value = with_interval(mean.value, ends, method=method, n_groups=mean.n_groups, p=p, support=mean.support)
    found = Difference.of(value, error=error, freedom=float(freedom))
    if pair is not None:
        found = found.replace(areas=PairedAreas(**{name: getattr(pair, name) for name in _AREAS}))
    return with_skipped_folds(found, n_skipped)


def difference_limits(value: Difference) -> DifferenceLimits | None:
    """Return the limits of an Estimate of ``difference_within_folds``; None without an interval.

    Without ``areas``, because an AUC is 0 or 1, they are those of Student's t, as its interval is.
    """
    if value.ci95 is None or value.areas is None or value.freedom is None:
        return StudentLimits.of(value)
    return LogitDifference(**{name: getattr(value.areas, name) for name in _AREAS}, freedom=value.freedom)


def _logits(a: FoldMean, b: FoldMean, variance: float, freedom: float, share: float) -> LogitDifference | None:
    """Return the pair of means, given the variance of their difference; None if a mean is 0 or 1 or does not vary."""
    one, other = a.variance_with(share)[0], b.variance_with(share)[0]
    if not (0 < a.value < 1 and 0 < b.value < 1 and one > NO_VARIANCE and other > NO_VARIANCE):
        return None
    covariance = (one + other - variance) / 2
    return LogitDifference(
        a=a.value,
        b=b.value,
        error_a=float(np.sqrt(one)),
        error_b=float(np.sqrt(other)),
        correlation=float(np.clip(covariance / np.sqrt(one * other), -1.0, 1.0)),
        freedom=float(freedom),
    )
