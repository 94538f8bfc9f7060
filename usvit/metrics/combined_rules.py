"""Rules that combine a reader's category with a model's decision: whom they biopsy, and what that changes."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.checks import check_positive
from usvit.metrics.proportions import clustered_share

Combination = Literal["downgrade", "upgrade", "both"]
COMBINATIONS: tuple[Combination, ...] = get_args(Combination)


@dataclass(frozen=True)
class BiopsyChange:
    """Which of n images a rule biopsies otherwise than the reader alone, each (n,) bool."""

    avoided: np.ndarray
    """Biopsied by the reader alone, and not by the rule."""
    missed: np.ndarray
    """Cancers among ``avoided``."""
    added: np.ndarray
    """Biopsied by the rule, and not by the reader alone."""
    found: np.ndarray
    """Cancers among ``added``."""

    @classmethod
    def of(cls, cancer: ArrayLike, alone: ArrayLike, combined: ArrayLike) -> "BiopsyChange":
        """Compare the biopsies of a rule with those of the reader alone.

        Args:
            cancer: (n,) bool, the reference.
            alone, combined: (n,) bool, whether the reader alone, and the rule, biopsies.

        Raises:
            ValueError: as ``checks.check_positive``.

        >>> change = BiopsyChange.of([1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0])
        >>> int(change.avoided.sum()), int(change.missed.sum()), int(change.found.sum())
        (1, 0, 1)
        """
        truth, before, after = (check_positive(one) for one in (cancer, alone, combined))
        avoided, added = before & ~after, after & ~before
        return cls(avoided, avoided & truth, added, added & truth)


def combined_biopsies(
    alone: ArrayLike, doubtful: ArrayLike, followed: ArrayLike, called: ArrayLike, rule: Combination
) -> np.ndarray:
    """Return the (n,) images that a rule biopsies.

    Args:
        alone: (n,) bool, whether the reader alone biopsies.
        doubtful: (n,) bool, categories that a negative decision of the model downgrades.
        followed: (n,) bool, categories that a positive decision of the model upgrades.
        called: (n,) bool, whether the model calls the image positive.
        rule: "downgrade": ``doubtful`` images that the model calls negative are not biopsied. "upgrade": ``followed``
            images that it calls positive are. "both": both.

    Raises:
        ValueError: as ``checks.check_positive``.

    >>> combined_biopsies([1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], "both").tolist()
    [True, False, True]
    """
    before, low, high, model = (check_positive(one) for one in (alone, doubtful, followed, called))
    after = before.copy()
    if rule != "upgrade":
        after &= ~(low & ~model)
    if rule != "downgrade":
        after |= high & model
    return after


def per_thousand(hits: ArrayLike, group: ArrayLike) -> Estimate:
    """Compute the number of hits per 1,000 images with the interval of ``proportions.clustered_share``.

    >>> found = per_thousand([1, 0, 0, 0], [1, 2, 3, 4])
    >>> found.value, [round(end) for end in found.ci95]
    (250.0, [46, 699])
    """
    found = clustered_share(hits, group)
    value, ends = found.value, found.ci95
    return found.replace(
        value=None if value is None else 1000 * value,
        ci95=None if ends is None else (1000 * ends[0], 1000 * ends[1]),
    )
