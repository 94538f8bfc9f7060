"""Wilson's interval of a share for images that belong to groups, using an effective number of images.

It needs three sums over groups and no resampling, so shares of several folds can be added later. It also exists if no
image, or every image, is a hit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from usvit.metrics.checks import check_positive, group_codes
from usvit.metrics.intervals import ALPHA, Interval, all_or_none_interval, effective_wilson
from usvit.metrics.support import effective_groups, satterthwaite_freedom, steadied_design_effect
from usvit.records import InDistribution

METHOD = "clustered Wilson"
ONE_GROUP = "there is only one group"


@dataclass(frozen=True)
class ShareSums:
    """A share of images and its variation between groups; ``joined`` adds several that have different groups.

    Attributes:
        n_images: n.
        n_hits: images that are hits.
        n_groups: G, groups with an image.
        hits_squared: sum over groups of hits^2.
        hits_by_images: sum over groups of hits * images.
        images_squared: sum over groups of images^2.
    """

    n_images: int
    n_hits: int
    n_groups: int
    hits_squared: int
    hits_by_images: int
    images_squared: int

    @classmethod
    def of(cls, hits: Any, group: Any) -> "ShareSums":
        """Compute the sums of (n,) bool hits and (n,) groups; n may be 0."""
        if not len(hits):
            return cls(0, 0, 0, 0, 0, 0)
        found = check_positive(hits)
        code, n_groups = group_codes(group, len(found))
        m, x = np.bincount(code, minlength=n_groups), np.bincount(code[found], minlength=n_groups)
        return cls(len(found), int(x.sum()), n_groups, int(x @ x), int(x @ m), int(m @ m))

    @classmethod
    def joined(cls, several: Iterable["ShareSums"]) -> "ShareSums":
        """Add the sums of several sets of images that have no group in common."""
        columns = [list(vars(one).values()) for one in several]
        return cls(*(sum(values) for values in zip(*columns, strict=True))) if columns else cls(0, 0, 0, 0, 0, 0)

    @property
    def share(self) -> float | None:
        return self.n_hits / self.n_images if self.n_images else None

    @property
    def effective_groups(self) -> float:
        """Kish's effective number of groups of unequal size."""
        return self.n_images**2 / self.images_squared if self.images_squared else 0.0

    @property
    def variance(self) -> float:
        """Variance of the share between groups: G / (G - 1) sum (x - p m)^2 / n^2; NaN for fewer than two groups."""
        if self.n_groups < 2:
            return float("nan")
        p = self.n_hits / self.n_images
        scatter = self.hits_squared - 2 * p * self.hits_by_images + p**2 * self.images_squared
        return self.n_groups / (self.n_groups - 1) * max(scatter, 0.0) / self.n_images**2

    def interval(self, *, alpha: float = ALPHA, freedom: float | None = None) -> Interval | None:
        """Compute Wilson's interval of the share for an effective number of images; None without images.

        The effective number is n over the design effect, which is the share's variance over that of independent
        images, at least 1, and lengthened by ``support.steadied_design_effect``. If there is one group, the images
        count as alike. If a group has several images, the quantile is Student's with one degree of freedom less than
        the effective number of groups, or with ``freedom`` if that is smaller, and a share of 0 or 1 has Clopper and
        Pearson's bound for the effective number of groups.

        Source: Franco, Little, Louis & Slud (2019), Journal of Survey Statistics and Methodology 7:334 (Wilson's
        interval for an effective sample size); Korn & Graubard (1998), Survey Methodology 24:193 (degrees of freedom).
        """
        if not self.n_images:
            return None
        p = self.n_hits / self.n_images
        single = self.n_groups == self.n_images
        effective, spread = float(self.n_images), 1e9
        if not single:
            if p in (0, 1):
                return all_or_none_interval(p, self.effective_groups, alpha=alpha)
            spread = max(min(self.effective_groups - 1, freedom or np.inf), 1.0)
            independent = p * (1 - p) / self.n_images
            largest = self.n_images / self.effective_groups
            design = max(1.0, self.variance / independent) if self.n_groups > 1 else largest
            effective = self.n_images / steadied_design_effect(design, largest, self.effective_groups)
        return effective_wilson(p, effective, quantile=float(stdtrit(spread, 1 - alpha / 2)))


def share_interval(hits: np.ndarray, code: np.ndarray) -> Interval | None:
    """Compute Wilson's interval of a share with the degrees of freedom of ``share_freedom``; None for a single group.

    Args:
        hits: (n,) bool, n >= 1.
        code: (n,) int, the group of each image.
    """
    sums = ShareSums.of(hits, code)
    return sums.interval(freedom=share_freedom(hits, code)) if sums.n_groups > 1 or len(hits) == 1 else None


def share_freedom(hits: np.ndarray, code: np.ndarray) -> float:
    """Compute the degrees of freedom of a share's variance between groups (``support.satterthwaite_freedom``).

    Args:
        hits: (n,) bool, n >= 1.
        code: (n,) int, the group of each image.
    """
    images = np.bincount(code)
    return satterthwaite_freedom(np.bincount(code, hits) - hits.mean() * images, effective_groups(images))


def rate_record(sums: ShareSums, repeat: int | None = None) -> InDistribution:
    """Create the rate of flagged images for ``model.json``, with the sums that allow several folds to be added."""
    return InDistribution(
        part="test",
        repeat=repeat,
        n_images=sums.n_images,
        n_groups=sums.n_groups,
        n_flagged=sums.n_hits,
        rate=sums.share,
        ci95=sums.interval(),
        method=METHOD,
        sums=[sums.hits_squared, sums.hits_by_images, sums.images_squared],
    )


def pooled_rate(records: Sequence[InDistribution]) -> ShareSums:
    """Join the rates of the test images of several networks; of a repeated cross-validation, of the first repeat."""
    first = min((one.repeat or 0 for one in records), default=0)
    records = [one for one in records if (one.repeat or 0) == first]  # otherwise a group would count in two networks
    return ShareSums.joined([ShareSums(one.n_images, one.n_flagged, one.n_groups, *one.sums) for one in records])
