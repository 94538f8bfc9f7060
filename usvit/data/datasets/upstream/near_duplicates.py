"""Near-duplicates of upstream images: descriptions for the record, and exclusion of downstream test images.

Only ultrasound images are described, that is the images of data cards and of your own folders. Named collections of
photographs (ImageNet, CIFAR, ...) and shards are recognised by pixel hashes alone: the search for near-duplicates is
built for ultrasound images and tested on them, and shards may have to be downloaded again for each pass.

For the exclusion, the few downstream images are indexed once. Upstream images are processed in chunks: each is
described, compared with the index and discarded, so that the memory does not grow with the number of upstream images.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.datasets.manifest import Manifest
from usvit.data.datasets.upstream.base import (
    HASHED_AT_ONCE,
    ConcatDataset,
    GeneratedSource,
    Indices,
    Relabelled,
    Subset,
    UpstreamDataset,
)
from usvit.data.datasets.upstream.manifest_source import ManifestSource
from usvit.data.io import BadImage, UInt8
from usvit.data.near_duplicates import (
    CompactDescriptions,
    Description,
    NearDuplicate,
    describe,
    find_near_duplicates_between,
)
from usvit.data.splits import MAX_DESCRIBED
from usvit.errors import UsvitError
from usvit.progress import Progress, task
from usvit.resources import usable_cores

CHUNK = 512
"""Number of upstream images that are held at a time; their descriptions take less than 1 MB."""
COLUMNS = ("upstream_index", "upstream_name", "dataset", "image_id", "similarity", "kind")


@dataclass(frozen=True)
class Excluded:
    """An upstream image that shows the same frame as a downstream image."""

    index: int
    """Index of the upstream image in its source."""
    image_id: str
    dataset: str
    similarity: float
    """Similarity from ``MIN_SIMILARITY`` to 1, see ``usvit.data.near_duplicates.NearDuplicate``."""
    kind: str
    """As ``NearDuplicate.kind``."""


def copies_of(source: UpstreamDataset, downstream: Manifest, progress: Progress) -> list[Excluded]:
    """Find upstream images that are near-duplicates of downstream images: stored again, cropped, rotated, annotated.

    Identical pixels are recognised by their hash; all others by landmarks, with the thresholds of the audit
    (``usvit.data.near_duplicates``). Generated images are skipped. Every upstream image is decoded once.

    Args:
        source: the upstream images.
        downstream: the downstream images, including the excluded ones, which another run may test.
        progress: shown while images are described.

    Returns:
        All pairs in the order of the upstream images. One upstream image may match several downstream images.

    Raises:
        BadImage: An upstream or downstream image cannot be read.
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
                known += pool.map(_describer(downstream_pixels), range(start, min(start + CHUNK, len(rows))))
                advance(len(known))
        search = _Search(known, rows, len(known) + len(candidates))
        found: list[Excluded] = []
        with task(progress, f"searching for near-duplicates in {source.name}", len(candidates), "images") as advance:
            for start in range(0, len(candidates), CHUNK):
                chunk = candidates[start : start + CHUNK].tolist()
                found += search.copies(chunk, list(pool.map(_describer(upstream_pixels), chunk)))
                advance(start + len(chunk))
    return found


class Without(Subset):
    """A dataset without some of its images.

    Args:
        source: the dataset.
        indices: images to leave out, in any order; repetitions are allowed.

    Raises:
        UsvitError: No image is left.
    """

    def __init__(self, source: UpstreamDataset, indices: Sequence[int] | Indices):
        left = np.setdiff1d(np.arange(len(source)), np.asarray(indices, dtype=np.int64))
        if len(left) == 0:
            raise UsvitError(
                f"All {len(source)} images of the source {source.name} are images of source.exclude or their "
                "near-duplicates, so no training images are left. Exclude other data cards, or use another source."
            )
        super().__init__(source, left)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "excluded": len(self.source) - len(self)}


def excluded_table(source: UpstreamDataset, found: Sequence[Excluded]) -> pd.DataFrame:
    """Return a table with one row per pair and the columns ``COLUMNS``."""
    rows = [
        (one.index, source.image_name(one.index), one.dataset, one.image_id, one.similarity, one.kind) for one in found
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _from_elsewhere(source: UpstreamDataset) -> NDArray[np.bool_]:
    """Return (N,) booleans: True for images that are not generated."""
    if isinstance(source, GeneratedSource):
        return np.zeros(len(source), dtype=np.bool_)
    if isinstance(source, ConcatDataset):
        return np.concatenate([_from_elsewhere(part) for part in source.sources])
    if isinstance(source, Subset):
        return np.asarray(_from_elsewhere(source.source)[source.indices])
    if isinstance(source, Relabelled):
        return _from_elsewhere(source.source)
    return np.ones(len(source), dtype=np.bool_)


def _describer(pixels: Callable[[int], UInt8]) -> Callable[[int], Description]:
    return lambda number: describe(pixels(number))


class _Search:
    def __init__(self, known: list[Description], rows: pd.DataFrame, images: int):
        self._known, self._rows, self._images = known, rows, images

    def copies(self, chunk: list[int], descriptions: list[Description]) -> list[Excluded]:
        """Find near-duplicates among some upstream images, given by their indices."""
        found = find_near_duplicates_between(self._known, descriptions, images=self._images)
        return [self._found(chunk[copy.second], copy) for copy in found]

    def _found(self, index: int, copy: NearDuplicate) -> Excluded:
        row = self._rows.iloc[copy.first]
        return Excluded(index, str(row.image_id), str(row.dataset), copy.similarity, copy.kind)


OWN = ("folder", "unlabeled")
"""Names of the sources of users' own images, which may be ultrasound images."""


def descriptions_of_source(
    source: UpstreamDataset, progress: Progress, indices: Indices | None = None
) -> dict[str, CompactDescriptions]:
    """Describe the images of a source that may be near-duplicates of test images.

    Args:
        source: the images.
        progress: shown while files are decoded.
        indices: (m,) images to describe; all by default.

    Returns:
        Pixel hash -> description. Photographs, generated images, and folders of more than ``MAX_DESCRIBED`` images are
        left out.

    Raises:
        BadImage: An image cannot be read.
    """
    chosen = np.arange(len(source)) if indices is None else np.asarray(indices, dtype=np.int64)
    if isinstance(source, Relabelled):
        return descriptions_of_source(source.source, progress, chosen)
    if isinstance(source, Subset):
        return descriptions_of_source(source.source, progress, source.indices[chosen])
    if isinstance(source, ConcatDataset):
        found: dict[str, CompactDescriptions] = {}
        start = 0
        for part in source.sources:
            inside = chosen[(chosen >= start) & (chosen < start + len(part))] - start
            found |= descriptions_of_source(part, progress, inside)
            start += len(part)
        return found
    if isinstance(source, ManifestSource):
        return source.descriptions(chosen)
    if source.name not in OWN or len(chosen) > MAX_DESCRIBED:
        return {}
    return _described(source, chosen, progress)


def _described(source: UpstreamDataset, chosen: Indices, progress: Progress) -> dict[str, CompactDescriptions]:
    def one(index: int) -> Description:
        return describe(np.asarray(source.image(index)))

    found: dict[str, CompactDescriptions] = {}
    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        task(progress, f"describing {source.name}", len(chosen), "images") as advance,
    ):
        for start in range(0, len(chosen), HASHED_AT_ONCE):
            portion = chosen[start : start + HASHED_AT_ONCE].tolist()
            found |= {each.sha256: CompactDescriptions.of([each]) for each in pool.map(one, portion)}
            advance(start + len(portion))
    return found
