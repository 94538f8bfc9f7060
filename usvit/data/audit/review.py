"""What a person reviews of an audit: pairs of near-duplicates by kind, and examples of each flag."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from usvit.data.audit.audit_dataset import Audit
from usvit.data.near_duplicates import NearDuplicate

MAX_PAIRS, MAX_CONFLICTS, MAX_EXAMPLES = 300, 100, 12
"""Limits of the review; audit.json holds everything. The number of examples is per flag."""


@dataclass(frozen=True)
class ReviewedPairs:
    """Pairs of near-duplicates of one kind."""

    total: int
    shown: list[NearDuplicate]
    """The least certain ones, in ascending order of similarity."""


@dataclass(frozen=True)
class SizeSpread:
    """A measure of the size of the images."""

    name: str
    label: str
    values: np.ndarray
    """(n,) float64, one of each image."""
    quantiles: tuple[float, float, float]
    """Minimum, median and maximum."""


@dataclass(frozen=True)
class AuditReview:
    """What is shown of an audit; rows are those of the manifest's table."""

    conflicts: ReviewedPairs
    """Pairs with different labels."""
    shared: ReviewedPairs
    """Other pairs, whose images are in two data sets."""
    copies: ReviewedPairs
    """All other pairs."""
    examples: dict[str, list[int]]
    """Flag -> rows of images that carry it."""
    group_sizes: list[tuple[int, int]]
    """Number of images in a group of near-duplicates, and the number of such groups."""
    sizes: list[SizeSpread]


def choose_for_review(audit: Audit) -> AuditReview:
    """Choose what a person reviews of an audit."""
    table = audit.manifest.table
    conflicts: list[NearDuplicate] = []
    shared: list[NearDuplicate] = []
    copies: list[NearDuplicate] = []
    for pair in sorted(audit.pairs, key=lambda pair: (pair.similarity, pair.first, pair.second)):
        first, second = table.iloc[pair.first], table.iloc[pair.second]
        kind = conflicts if first.label != second.label else shared if first.dataset != second.dataset else copies
        kind.append(pair)
    flagged = {name: [row for row, one in enumerate(audit.flags) if name in one] for name in audit.record.flag_counts}
    return AuditReview(
        ReviewedPairs(len(conflicts), conflicts[:MAX_CONFLICTS]),
        ReviewedPairs(len(shared), shared[:MAX_PAIRS]),
        ReviewedPairs(len(copies), copies[:MAX_PAIRS]),
        # Spread the examples over the data set, because neighbouring images are often alike.
        {name: rows[:: max(1, len(rows) // MAX_EXAMPLES)][:MAX_EXAMPLES] for name, rows in flagged.items()},
        sorted(Counter(map(len, audit.record.duplicate_groups)).items()),
        _sizes(audit),
    )


def _sizes(audit: Audit) -> list[SizeSpread]:
    height, width = audit.sizes[:, 0], audit.sizes[:, 1]
    measures = (
        ("height", "Height (px)", height),
        ("width", "Width (px)", width),
        ("aspect", "Width / height", width / height),
    )
    found = []
    for name, label, values in measures:
        low, median, high = np.percentile(values, [0, 50, 100])
        found.append(SizeSpread(name, label, values, (float(low), float(median), float(high))))
    return found
