"""Intervals of shares that are means over folds: accuracy, sensitivity, specificity and balanced accuracy.

The variance between groups is 0 if a class is all right or all wrong, and too small if the few patients that differ
were not drawn. Wilson's interval for an effective number of images has a bound in both cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from usvit.metrics.intervals import ALPHA, Interval, all_or_none_interval, effective_wilson
from usvit.metrics.mover import common_groups, mean_interval
from usvit.metrics.support import effective_groups, satterthwaite_freedom, steadied_design_effect


@dataclass(frozen=True)
class FoldShare:
    """A share of images as a mean over folds, and over repeats if there are any.

    Attributes:
        value: the share.
        variance: of the contributions of the groups; NaN if there are not more groups than folds.
        freedom: degrees of freedom of that variance.
        adds: (G,) contribution of each group; 0 for a group without such an image.
        images: number of images with which a share of independent images would have the variance of this mean.
        effective: the same for groups whose images are alike.
        of_repeats: variance of the mean over repeats that is due to training; 0 with one repeat.
        n_repeats: number of repeats.
        present: (G,) bool, whether a group has such an image.
    """

    value: float
    variance: float
    freedom: float
    adds: np.ndarray
    images: float
    effective: float
    of_repeats: float
    n_repeats: int
    present: np.ndarray

    def interval(self, share: float = 0.0) -> Interval:
        """Compute Wilson's interval with Student's quantile for a training share in [0, 1].

        The design effect is at least 1 and is lengthened by ``support.steadied_design_effect``. If it cannot be
        estimated, because each fold has one group, the images of a group count as alike. A share of 0 or 1 has Clopper
        and Pearson's bound for the effective number of groups.

        Source: as ``clustered_wilson.ShareSums.interval``.
        """
        independent, largest = self.value * (1 - self.value) / self.images, self.images / self.effective
        if bound := all_or_none_interval(self.value, self.effective / (1 + share)):
            return bound
        design = largest if np.isnan(self.variance) else max(1.0, self.variance / independent)
        whole = steadied_design_effect(design, largest, self.effective) * (1 + share) + self.of_repeats / independent
        quantile = float(stdtrit(self._freedom(largest), 1 - ALPHA / 2))
        return effective_wilson(self.value, self.images / whole, quantile=quantile)

    def _freedom(self, largest: float) -> float:
        """Return degrees of freedom; the variance of independent images is known, and has as many as one likes."""
        if largest < 1 + 1e-9 and self.n_repeats == 1:
            return 1e9
        own = satterthwaite_freedom(self.adds[self.present], self.effective)
        return own if np.isnan(self.variance) or not self.variance else max(1.0, min(own, self.freedom))


def equal_sizes(images: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the numbers of images and of groups that give a mean over folds its variance.

    Args:
        images: (G,) number of images of each group, for each of K folds with an image.

    Returns:
        K^2 / sum(1 / n_k), for the n_k images of the folds, and for their effective groups.
    """
    sizes = np.array([float(one.sum()) for one in images])
    groups = np.array([effective_groups(one) for one in images])
    return len(images) ** 2 / float((1 / sizes).sum()), len(images) ** 2 / float((1 / groups).sum())


def shares_interval(shares: Sequence[FoldShare], share: float) -> Interval:
    """Compute the interval of the mean of several shares; of a single one, its own."""
    ends = [one.interval(share) for one in shares]
    if len(shares) == 1:
        return ends[0]
    unknown = common_groups(np.array([one.present for one in shares]))
    return mean_interval([one.value for one in shares], ends, np.array([one.adds for one in shares]), unknown)
