"""Shares of images: the number, its interval and the number of groups."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.clustered_wilson import METHOD, ONE_GROUP, share_interval
from usvit.metrics.intervals import undefined, wilson, with_interval
from usvit.metrics.support import support_of

ShareInterval = Callable[[np.ndarray, np.ndarray], Estimate]
"""Function of (n,) bool hits and (n,) groups, n >= 1, that returns the share with its interval: ``clustered_share``."""


def point(value: float, n_groups: int, method: str = "point estimate") -> Estimate:
    """Create the Estimate of a number without an interval."""
    return Estimate(value=float(value), ci95=None, method=method, n_groups=n_groups)


def share(hits: np.ndarray, group: np.ndarray, *, of: str, interval: ShareInterval | None = None) -> Estimate:
    """Compute the share of hits among n images; undefined if n is 0.

    Args:
        hits: (n,) bool.
        group: (n,) the patient of each image.
        of: description of the images in the plural, for the reason.
        interval: ``clustered_share``, or None for the number alone.
    """
    if not len(hits):
        return undefined(f"there are no {of}", 0)
    if interval is None:
        return point(float(np.mean(hits)), group_codes(group, len(hits))[1])
    return interval(hits, group)


def clustered_share(hits: ArrayLike, group: ArrayLike) -> Estimate:
    """Compute the share of hits with the interval that ``bootstrap.figure_values`` uses for a proportion.

    The interval is Wilson's if every image has its own group; otherwise it is Wilson's for an effective number of
    images, with Student's quantile (``clustered_wilson``). It needs no resampling, and it exists for a share of 0 or 1.

    Args:
        hits: (n,) bool, n >= 1.
        group: (n,) int or str.

    Returns:
        An Estimate; without an interval, but with a reason, if several images are all of one group.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.group_codes``.
    """
    right = check_positive(hits)
    code, n_groups = group_codes(group, len(right))
    value = float(right.mean())
    if n_groups == len(right):
        return with_interval(value, wilson(int(right.sum()), len(right)), method="wilson", n_groups=n_groups)
    ends = share_interval(right, code)
    reason = "" if ends else ONE_GROUP
    return with_interval(value, ends, method=METHOD, n_groups=n_groups, reason=reason, support=support_of(code))


def check_binary(positive: ArrayLike, prob: ArrayLike, group: ArrayLike | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Convert (n,) reference and (n,) probabilities to bool and float64, and count the groups.

    If ``group`` is None, every image is its own group.

    Raises:
        ValueError: as ``checks``; a probability lies outside [0, 1]. The index is named.
    """
    reference = check_positive(positive)
    p = check_score(prob, len(reference))
    bad = (p < 0) | (p > 1)
    if bad.any():
        raise ValueError(f"the probability at index {int(bad.argmax())} is {p[bad][0]}, expected 0 to 1")
    return reference, p, count_groups(group, len(p))


def count_groups(group: ArrayLike | None, n: int) -> int:
    """Count the groups among (n,) ids; n if ``group`` is None."""
    return n if group is None or n == 0 else group_codes(group, n)[1]
