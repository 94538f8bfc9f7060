"""Near-duplicates of upstream images: descriptions for the record, and exclusion of downstream test images.

For the record only ultrasound images are described, that is the images of data cards and of your own folders. Named
collections of photographs (ImageNet, CIFAR, ...) and shards are recognised there by pixel hashes alone: shards may have
to be downloaded again for each pass.

The exclusion (``source.exclude``) compares all images, photographs included, although the search was built for
ultrasound images and finds fewer changed copies of photographs. The downstream images are indexed once. Upstream images
are processed in chunks: each is described, compared with the index and discarded, so that the memory does not grow with
the number of upstream images.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.datasets import (
    HASHED_AT_ONCE,
    ConcatDataset,
    GeneratedSource,
    Indices,
    Manifest,
    ManifestSource,
    Relabelled,
    Subset,
    UpstreamDataset,
)
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
from usvit.records.weights_origin import ExclusionRecord, SourceRecord
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


class DownstreamImages:
    """The images that will be tested downstream: those of data cards, and those of named upstream sets.

    Args:
        manifest: the images of data cards, including the excluded ones, which another run may test.
        sets: name and split, such as ``cifar10:test`` -> its images.
    """

    def __init__(self, manifest: Manifest | None, sets: Mapping[str, UpstreamDataset] | None = None):
        self.manifest, self.sets = manifest, dict(sets or {})
        self._rows = None if manifest is None else manifest.table.reset_index(drop=True)
        self._ends = np.cumsum([0 if self._rows is None else len(self._rows), *map(len, self.sets.values())])

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the data cards, and the named sets with their splits."""
        return (*(self.manifest.roots if self.manifest else ()), *self.sets)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def pixels(self, number: int) -> UInt8:
        """Decode one image.

        Raises:
            BadImage: The image cannot be read.
        """
        part, index = self._place(number)
        if part is not None:
            return np.asarray(self.sets[part].image(index))
        assert self.manifest is not None and self._rows is not None
        try:
            return self.manifest.read(self._rows.iloc[index])
        except BadImage as bad:
            raise self.manifest.told(bad) from bad

    def identity(self, number: int) -> tuple[str, str]:
        """Return the data set and the name of one image."""
        part, index = self._place(number)
        if part is not None:
            return part, self.sets[part].image_name(index)
        assert self._rows is not None
        row = self._rows.iloc[index]
        return str(row.dataset), str(row.image_id)

    def record(self) -> ExclusionRecord:
        """Return the entry of ``run.json``: names and hashes of the listings, no path."""
        return ExclusionRecord(
            datasets=list(self.names),
            manifest_sha256=None if self.manifest is None else self.manifest.sha256(),
            listing_sha256={name: images.listing_sha256() for name, images in self.sets.items()} or None,
        )

    def _place(self, number: int) -> tuple[str | None, int]:
        part = int(np.searchsorted(self._ends, number, side="right"))
        return (None, number) if part == 0 else (list(self.sets)[part - 1], number - int(self._ends[part - 1]))


def copies_of(source: UpstreamDataset, tested: DownstreamImages, progress: Progress) -> list[Excluded]:
    """Find upstream images that are near-duplicates of downstream images: stored again, cropped, rotated, annotated.

    Identical pixels are recognised by their hash; all others by landmarks, with the thresholds of the audit
    (``usvit.data.near_duplicates``). Generated images are skipped. Every upstream image is decoded once.

    Args:
        source: the upstream images.
        tested: the downstream images.
        progress: shown while images are described.

    Returns:
        All pairs in the order of the upstream images. One upstream image may match several downstream images.

    Raises:
        BadImage: An upstream or downstream image cannot be read.
    """
    candidates = np.flatnonzero(_from_elsewhere(source))
    if len(candidates) == 0:
        return []

    def upstream_pixels(index: int) -> UInt8:
        return np.asarray(source.image(index))

    with ThreadPoolExecutor(usable_cores()) as pool:
        with task(progress, "describing downstream images", len(tested), "images") as advance:
            known: list[Description] = []
            for start in range(0, len(tested), CHUNK):
                known += pool.map(_describer(tested.pixels), range(start, min(start + CHUNK, len(tested))))
                advance(len(known))
        search = _Search(known, tested, len(known) + len(candidates))
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
                "near-duplicates, so no training images are left. Exclude other data sets, or use another source."
            )
        super().__init__(source, left)

    def record(self) -> SourceRecord:
        return super().record().model_copy(update={"excluded": len(self.source) - len(self)})


def excluded_table(source: UpstreamDataset, excluded: Sequence[Excluded]) -> pd.DataFrame:
    """Return a table with one row per pair and the columns ``COLUMNS``."""
    rows = [
        (one.index, source.image_name(one.index), one.dataset, one.image_id, one.similarity, one.kind)
        for one in excluded
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
    def __init__(self, known: list[Description], tested: DownstreamImages, images: int):
        self._known, self._tested, self._images = known, tested, images

    def copies(self, chunk: list[int], descriptions: list[Description]) -> list[Excluded]:
        """Find near-duplicates among some upstream images, given by their indices."""
        found = find_near_duplicates_between(self._known, descriptions, images=self._images)
        return [self._found(chunk[copy.second], copy) for copy in found]

    def _found(self, index: int, copy: NearDuplicate) -> Excluded:
        dataset, image_id = self._tested.identity(copy.first)
        return Excluded(index, image_id, dataset, copy.similarity, copy.kind)


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
