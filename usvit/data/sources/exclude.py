"""Upstream images that are, or show, images of a downstream test: found as the audit finds copies, and left out.

The few downstream images are indexed once; upstream images pass by in chunks, each described, compared with the index
and forgotten. So the memory does not grow with the number of upstream images, and they are not compared with each
other.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.copies import Copy, Description, describe, find_copies_between
from usvit.data.images import BadImage, UInt8
from usvit.data.manifest import Manifest
from usvit.data.sources.base import GeneratedSource, Indices, image_name
from usvit.data.sources.combine import Joined, Relabelled, Subset
from usvit.data.sources.source import Source
from usvit.errors import UsvitError
from usvit.files import write_csv
from usvit.progress import Progress, task
from usvit.resources import usable_cores

CHUNK = 512
"""Upstream images that are held at once: their descriptions take less than 1 MB."""
COLUMNS = ("upstream_index", "upstream_name", "dataset", "image_id", "similarity", "kind")


@dataclass(frozen=True)
class Excluded:
    """An upstream image that shows the same frame as a downstream image."""

    index: int
    """Of the source."""
    image_id: str
    dataset: str
    similarity: float
    """As ``usvit.data.copies.Copy``: from ``MIN_SIMILARITY`` to 1."""
    kind: str
    """One of ``usvit.data.copies.find.KINDS``."""


def copies_of(source: Source, downstream: Manifest, progress: Progress) -> list[Excluded]:
    """Upstream images that are copies of downstream images: stored again, cropped, turned, mirrored, annotated.

    Identical pixels are told by their hash; for all others landmarks are compared, with the audit's bounds
    (``usvit.data.copies``). Images made on the fly are passed over. Every upstream image is decoded once.

    Args:
        source: the upstream images.
        downstream: all its images are looked for, those left out of it too: another run may test them.
        progress: shown while images are described.

    Returns:
        Every pair, in order of the upstream images. One upstream image may be a copy of several.

    Raises:
        BadImage: an image of either cannot be read.
    """
    candidates = np.flatnonzero(_from_elsewhere(source))
    if len(candidates) == 0:
        return []
    rows = downstream.table.reset_index(drop=True)

    def downstream_pixels(number: int) -> UInt8:
        row = rows.iloc[number]
        try:
            return downstream.read(row)
        except BadImage as bad:
            raise downstream.told(bad) from bad

    def upstream_pixels(index: int) -> UInt8:
        return np.asarray(source.image(index))

    with ThreadPoolExecutor(usable_cores()) as pool:
        with task(progress, "describing downstream images", len(rows), "images") as advance:
            known: list[Description] = []
            for start in range(0, len(rows), CHUNK):
                known += pool.map(_described(downstream_pixels), range(start, min(start + CHUNK, len(rows))))
                advance(len(known))
        search = _Search(known, rows, len(known) + len(candidates))
        found: list[Excluded] = []
        with task(progress, f"looking for copies in {source.name}", len(candidates), "images") as advance:
            for start in range(0, len(candidates), CHUNK):
                chunk = candidates[start : start + CHUNK].tolist()
                found += search.copies(chunk, list(pool.map(_described(upstream_pixels), chunk)))
                advance(start + len(chunk))
    return found


class Without(Subset):
    """A source without some of its images.

    Args:
        source: the whole.
        indices: of the images to be left out; in any order, repeated or not.

    Raises:
        UsvitError: nothing is left.
    """

    def __init__(self, source: Source, indices: Sequence[int] | Indices):
        left = np.setdiff1d(np.arange(len(source)), np.asarray(indices, dtype=np.int64))
        if len(left) == 0:
            raise UsvitError(
                f"All {len(source)} images of the source {source.name} are images of source.exclude, or copies of "
                "them: nothing is left to learn from. Exclude other data cards, or learn from another source."
            )
        super().__init__(source, left)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "excluded": len(self.source) - len(self)}


def excluded_table(source: Source, found: Sequence[Excluded]) -> pd.DataFrame:
    """One row a pair: ``COLUMNS``."""
    rows = [
        (one.index, image_name(source, one.index), one.dataset, one.image_id, one.similarity, one.kind) for one in found
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def write_excluded(path: Path, source: Source, found: Sequence[Excluded]) -> None:
    """Write ``excluded.csv``; the header alone where nothing was found.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    write_csv(path, excluded_table(source, found))


def _from_elsewhere(source: Source) -> NDArray[np.bool_]:
    """(N,) which images were not made on the fly."""
    if isinstance(source, GeneratedSource):
        return np.zeros(len(source), dtype=np.bool_)
    if isinstance(source, Joined):
        return np.concatenate([_from_elsewhere(part) for part in source.sources])
    if isinstance(source, Subset):
        return np.asarray(_from_elsewhere(source.source)[source.indices])
    if isinstance(source, Relabelled):
        return _from_elsewhere(source.source)
    return np.ones(len(source), dtype=np.bool_)


def _described(pixels: Callable[[int], UInt8]) -> Callable[[int], Description]:
    return lambda number: describe(pixels(number))


class _Search:
    def __init__(self, known: list[Description], rows: pd.DataFrame, images: int):
        self._known, self._rows, self._images = known, rows, images

    def copies(self, chunk: list[int], descriptions: list[Description]) -> list[Excluded]:
        """Copies among some upstream images, given by their numbers."""
        found = find_copies_between(self._known, descriptions, images=self._images)
        return [self._found(chunk[copy.second], copy) for copy in found]

    def _found(self, index: int, copy: Copy) -> Excluded:
        row = self._rows.iloc[copy.first]
        return Excluded(index, str(row.image_id), str(row.dataset), copy.similarity, copy.kind)
