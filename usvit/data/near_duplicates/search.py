"""Find near-duplicates among images, or of some images among others, by their descriptions alone."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from usvit.data.near_duplicates.candidates import find_candidates, find_candidates_between
from usvit.data.near_duplicates.description import Description
from usvit.data.near_duplicates.verification import Fit, fit
from usvit.progress import NO_PROGRESS, Progress, task

MIN_LANDMARKS = 6
"""Least number of squares of the image in which a landmark fits."""
MIN_SIMILARITY = 0.10
"""Least share of squares in which a landmark fits, of the squares with landmarks that both images show."""
MIN_SPREAD, MIN_SPREAD_OF_MANY = 0.4, 0.2
"""Least ``Fit.spread``, for fewer landmarks than ``_MANY_LANDMARKS`` and for others. A logo or an inset that two images
share fits only in one corner."""
_MANY_LANDMARKS = 10
"""Squares. In a noisy near-duplicate, landmarks are found only where structure is strong; a small inset has no room for
this many."""
_MIN_TURN = 10.0
"""Smallest rotation of a near-duplicate that is called turned, in degrees."""
ENOUGH_NEAR_DUPLICATES = 16
"""Two images are not compared if each has this many near-duplicates and they have one in common. Otherwise every frame
of a long sweep would be compared with every other one."""


@dataclass(frozen=True)
class NearDuplicate:
    """Two images that show one frame or neighbouring frames of one sweep, and therefore one patient."""

    first: int
    second: int
    similarity: float
    """Share of the common landmarks that fit, from ``MIN_SIMILARITY`` to 1 (identical pixels)."""
    kind: str
    """``identical``: equal pixels. ``same frame``: stored again, cropped, on a canvas, beside another view, resized,
    stretched, annotated, or a neighbouring frame of a sweep. ``turned``: by ``_MIN_TURN`` degrees or more. ``flipped``:
    mirrored, left to right or upside down. ``inverted``: black and white exchanged, flipped or not."""


def find_near_duplicates(descriptions: Sequence[Description], progress: Progress = NO_PROGRESS) -> list[NearDuplicate]:
    """Find pairs of near-duplicates; each pair is verified by the landmarks of both images.

    If several images have identical pixels, only the first is compared with other images, and the others are paired
    with it. Not every pair of a large set of near-duplicates is listed (``ENOUGH_NEAR_DUPLICATES``), but the pairs
    connect all images of the set (``clusters``).

    Args:
        descriptions: One description per image.
        progress: Shown while candidates are verified.

    Returns:
        Each pair once, with ``first < second``, ordered by (first, second).
    """
    original: dict[str, int] = {}
    for number, description in enumerate(descriptions):
        original.setdefault(description.sha256, number)
    firsts = [original[description.sha256] for description in descriptions]
    found = {
        (first, number): NearDuplicate(first, number, 1.0, "identical")
        for number, first in enumerate(firsts)
        if first < number
    }
    distinct = list(original.values())
    partners: defaultdict[int, set[int]] = defaultdict(set)
    candidates = find_candidates([descriptions[number] for number in distinct])
    with task(progress, "comparing images", len(candidates), "pairs") as advance:
        for done, candidate in enumerate(candidates, start=1):
            advance(done)
            first, second = distinct[candidate.first], distinct[candidate.second]
            ours, theirs = partners[first], partners[second]
            if min(len(ours), len(theirs)) >= ENOUGH_NEAR_DUPLICATES and not ours.isdisjoint(theirs):
                continue
            pair = _near_duplicate(
                first, second, fit(descriptions[first], descriptions[second], candidate), candidate.change
            )
            known = found.get((first, second))
            if pair is not None and (known is None or pair.similarity > known.similarity):
                found[first, second] = pair
                ours.add(second)
                theirs.add(first)
    return [found[key] for key in sorted(found)]


def find_near_duplicates_between(
    few: Sequence[Description],
    many: Sequence[Description],
    progress: Progress = NO_PROGRESS,
    *,
    images: int | None = None,
) -> list[NearDuplicate]:
    """Find pairs of near-duplicates between two sets of images, but not within a set.

    An image of ``many`` that is identical to one of ``few`` is not compared with the others of ``few``.

    Args:
        few: Images to which ``first`` of the pairs refers.
        many: Images to which ``second`` of the pairs refers.
        progress: Shown while candidates are verified.
        images: Number of images in both sets together, if ``many`` is only a portion of its set; with it, the result
            does not depend on the portions.

    Returns:
        Each pair once, ordered by (second, first).
    """
    same: defaultdict[str, list[int]] = defaultdict(list)
    for number, description in enumerate(few):
        same[description.sha256].append(number)
    found = {
        (second, first): NearDuplicate(first, second, 1.0, "identical")
        for second, description in enumerate(many)
        for first in same.get(description.sha256, [])
    }
    rest = [number for number, description in enumerate(many) if description.sha256 not in same]
    candidates = find_candidates_between(few, [many[number] for number in rest], images or len(few) + len(many))
    with task(progress, "comparing images", len(candidates), "pairs") as advance:
        for done, candidate in enumerate(candidates, start=1):
            advance(done)
            first, second = candidate.first, rest[candidate.second]
            pair = _near_duplicate(first, second, fit(few[first], many[second], candidate), candidate.change)
            known = found.get((second, first))
            if pair is not None and (known is None or pair.similarity > known.similarity):
                found[second, first] = pair
    return [found[key] for key in sorted(found)]


def clusters(n: int, pairs: Sequence[NearDuplicate]) -> NDArray[np.int64]:
    """Number the clusters of images that are connected by pairs of near-duplicates.

    Args:
        n: Number of images.
        pairs: Pairs of near-duplicates among them.

    Returns:
        (n,) number of the cluster of each image, from 0 in the order of first appearance. An image without
        near-duplicates is a cluster of its own.
    """
    ends = np.array([(pair.first, pair.second) for pair in pairs], dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _near_duplicate(first: int, second: int, found: Fit, change: int) -> NearDuplicate | None:
    least = MIN_SPREAD if found.landmarks < _MANY_LANDMARKS else MIN_SPREAD_OF_MANY
    if found.landmarks < MIN_LANDMARKS or found.share < MIN_SIMILARITY or found.spread < least:
        return None
    if change >= 2:
        kind = "inverted"
    elif change == 1:
        kind = "flipped"
    else:
        kind = "turned" if abs(found.turn) >= _MIN_TURN else "same frame"
    return NearDuplicate(first, second, round(found.share, 3), kind)
