"""Copies among images, and copies of some images among others: one rule of decision, on descriptions alone."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from usvit.data.copies.candidates import find_candidates, find_candidates_between
from usvit.data.copies.description import Description
from usvit.data.copies.verify import Fit, fit
from usvit.progress import NoProgress, Progress, task

MIN_LANDMARKS = 6
"""Squares of the image in which a landmark fits."""
MIN_SIMILARITY = 0.10
"""Share of the squares with landmarks that both images show, in which one fits."""
MIN_SPREAD, MIN_SPREAD_OF_MANY = 0.4, 0.2
"""``Fit.spread``, below and from ``MANY_LANDMARKS``: a logo or an inset that two images share fits in one corner."""
MANY_LANDMARKS = 10
"""Squares. Of a noisy copy landmarks are found where structure is strong; a small inset has no room for so many."""
MIN_TURN = 10.0
"""Degrees, from which a copy is called turned."""
ENOUGH_COPIES = 16
"""Two images that have so many copies each, and one of them in common, are not compared any more: the frames of a
long sweep would be compared all with all."""
KINDS = ("identical", "same frame", "turned", "flipped", "inverted")
"""Words for what was found. ``identical``: equal pixels. ``same frame``: stored again, cropped, on a canvas, beside
another view, resized, stretched, annotated, or its neighbour in a sweep. ``turned`` by ``MIN_TURN`` degrees or more.
``flipped``: mirrored, left to right or upside down. ``inverted``: black for white, flipped or not."""


@dataclass(frozen=True)
class Copy:
    """Two images that show one frame, or neighbouring frames of one sweep: one patient in either case."""

    first: int
    second: int
    similarity: float
    """Share of what both show that fits, from ``MIN_SIMILARITY`` to 1 (identical pixels)."""
    kind: str
    """One of ``KINDS``."""


def find_copies(descriptions: Sequence[Description], progress: Progress) -> list[Copy]:
    """Pairs of copies, each verified by the landmarks of both.

    Of images with identical pixels only the first is compared with the others, and each further one is paired with
    it. So not every pair of a large set of copies is listed (``ENOUGH_COPIES``), but all of it is connected
    (``clusters``).

    Args:
        descriptions: one an image.
        progress: shown while candidates are verified.

    Returns:
        Each pair once, ``first < second``, in the order of (first, second).
    """
    original: dict[str, int] = {}
    for number, description in enumerate(descriptions):
        original.setdefault(description.sha256, number)
    firsts = [original[description.sha256] for description in descriptions]
    copies = {
        (first, number): Copy(first, number, 1.0, "identical") for number, first in enumerate(firsts) if first < number
    }
    distinct = list(original.values())
    partners: defaultdict[int, set[int]] = defaultdict(set)
    candidates = find_candidates([descriptions[number] for number in distinct])
    with task(progress, "comparing images", len(candidates), "pairs") as advance:
        for done, candidate in enumerate(candidates, start=1):
            advance(done)
            first, second = distinct[candidate.first], distinct[candidate.second]
            ours, theirs = partners[first], partners[second]
            if min(len(ours), len(theirs)) >= ENOUGH_COPIES and not ours.isdisjoint(theirs):
                continue
            found = _copy(first, second, fit(descriptions[first], descriptions[second], candidate), candidate.change)
            known = copies.get((first, second))
            if found is not None and (known is None or found.similarity > known.similarity):
                copies[first, second] = found
                ours.add(second)
                theirs.add(first)
    return [copies[pair] for pair in sorted(copies)]


def find_copies_between(
    few: Sequence[Description],
    many: Sequence[Description],
    progress: Progress | None = None,
    *,
    images: int | None = None,
) -> list[Copy]:
    """Pairs of copies, ``first`` of the few and ``second`` of the many; neither are compared among themselves.

    An image of the many that is identical to one of the few is not compared with the others of the few.

    Args:
        few, many: the images.
        progress: shown while candidates are verified.
        images: of both together, where the many come in portions: what is found does not depend on the portions.

    Returns:
        Each pair once, in the order of (second, first).
    """
    same: defaultdict[str, list[int]] = defaultdict(list)
    for number, description in enumerate(few):
        same[description.sha256].append(number)
    copies = {
        (second, first): Copy(first, second, 1.0, "identical")
        for second, description in enumerate(many)
        for first in same.get(description.sha256, [])
    }
    rest = [number for number, description in enumerate(many) if description.sha256 not in same]
    candidates = find_candidates_between(few, [many[number] for number in rest], images or len(few) + len(many))
    with task(progress or NoProgress(), "comparing images", len(candidates), "pairs") as advance:
        for done, candidate in enumerate(candidates, start=1):
            advance(done)
            first, second = candidate.first, rest[candidate.second]
            found = _copy(first, second, fit(few[first], many[second], candidate), candidate.change)
            known = copies.get((second, first))
            if found is not None and (known is None or found.similarity > known.similarity):
                copies[second, first] = found
    return [copies[pair] for pair in sorted(copies)]


def clusters(n: int, copies: Sequence[Copy]) -> NDArray[np.int64]:
    """Number the clusters of copies; copies share one, transitively.

    Args:
        n: images.
        copies: pairs of them.

    Returns:
        (n,) from 0, in the order of first appearance; an image without a copy has a number of its own.
    """
    ends = np.array([(copy.first, copy.second) for copy in copies], dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _copy(first: int, second: int, found: Fit, change: int) -> Copy | None:
    least = MIN_SPREAD if found.landmarks < MANY_LANDMARKS else MIN_SPREAD_OF_MANY
    if found.landmarks < MIN_LANDMARKS or found.share < MIN_SIMILARITY or found.spread < least:
        return None
    if change >= 2:
        kind = "inverted"
    elif change == 1:
        kind = "flipped"
    else:
        kind = "turned" if abs(found.turn) >= MIN_TURN else "same frame"
    return Copy(first, second, round(found.share, 3), kind)
