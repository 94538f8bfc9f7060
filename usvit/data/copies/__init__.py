"""Copies of one frame: the same image stored again, cropped, shifted, mirrored, annotated, resized or recompressed.

Three steps: describe each image, find candidates by equal hashes, verify each candidate by its speckle.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from usvit.data.copies.candidates import find_candidates
from usvit.data.copies.description import Description, describe
from usvit.data.copies.verify import similarity
from usvit.progress import Progress, task

__all__ = ["ENOUGH_COPIES", "MIN_SIMILARITY", "Copy", "Description", "clusters", "describe", "find_copies"]

MIN_SIMILARITY = 0.6
"""Between what was measured: copies planted in phantoms have 0.82 and more, phantoms of different patients at most
0.41 (20,000 images). In BUSI, what lies around it are neighbouring frames of one sweep, not other patients."""
ENOUGH_COPIES = 16
"""Two images that have so many copies each, and one of them in common, are not compared any more: the frames of a
long sweep would be compared all with all."""


@dataclass(frozen=True)
class Copy:
    """Two images that show one frame, or neighbouring frames of one sweep: one patient in either case."""

    first: int
    second: int
    similarity: float
    """Correlation of their speckle once laid over each other, from ``MIN_SIMILARITY`` to 1 (identical pixels)."""
    kind: str
    """``identical`` (pixels), ``same frame`` or ``flipped`` (left to right)."""


def find_copies(descriptions: Sequence[Description], progress: Progress) -> list[Copy]:
    """Pairs of copies, each verified on pixels.

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
            found = similarity(descriptions[first], descriptions[second], candidate.flipped)
            known = copies.get((first, second))
            if found >= MIN_SIMILARITY and (known is None or found > known.similarity):
                kind = "flipped" if candidate.flipped else "same frame"
                copies[first, second] = Copy(first, second, round(found, 3), kind)
                ours.add(second)
                theirs.add(first)
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
