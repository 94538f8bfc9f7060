"""The class of all sets of upstream images, and its wrappers: a subset, a concatenation, other classes."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from usvit.data.io import pixel_sha256
from usvit.progress import NO_PROGRESS, Progress, task
from usvit.records.weights_origin import SourceRecord
from usvit.resources import usable_cores

Indices = NDArray[np.int64]

HASHED_AT_ONCE = 1024
"""Images that are given to the threads at once. Submitting millions at once would fill the memory."""


class StringArray(Sequence[str]):
    """Many strings in one block of bytes.

    14 million file names take 0.5 GB instead of 1.5 GB, and worker processes share them. Python's own strings would be
    copied as soon as a forked process counts their references.
    """

    def __init__(self, texts: Iterable[str]):
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        start, stop = self._ends[index % len(self)], self._ends[index % len(self) + 1]
        return self._bytes[start:stop].tobytes().decode("utf-8", "surrogateescape")

    def blocks(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the bytes and the end positions, for a checksum."""
        return self._bytes, self._ends


@dataclass(frozen=True)
class ImageText:
    """What is written about an image."""

    text: str
    concepts: Mapping[str, str] = field(default_factory=dict)
    """Kind -> what the image shows of it, such as ``{"shape": "oval"}``; a kind that is not known is missing."""


class UpstreamDataset(Dataset[Image.Image], ABC):
    """Images to learn from, as a map-style dataset: item ``index`` is always the same RGB image.

    A dataset can be pickled; worker processes get a copy. Subclasses implement ``image``, and ``listing`` if their
    images can change while names, classes and targets stay the same.

    Args:
        name: name for the record; it contains no path.
        classes: class names in the order of ``targets``; empty if the images are unlabelled.
        targets: (N,) class of each image, -1 if it is unlabelled.

    Attributes:
        levels: level -> coarser class of each class, such as ``{"order": ("Passeriformes", ...)}``.
        multi: (N,) all classes that count as correct for each image; None if there is one class per image.
        answers: class -> the classes of a classifier that count as correct for it, if these have other names than the
            classes (ObjectNet); None if the names are the same.
        left_out: number of images of the data set that are not listed because they have no label, or none of
            ``answers``.
    """

    def __init__(self, name: str, classes: Iterable[str], targets: Sequence[int] | Indices):
        self.name, self.classes = name, tuple(classes)
        self.targets: Indices = np.asarray(targets, dtype=np.int64)
        self.levels: Mapping[str, tuple[str, ...]] = {}
        self.multi: Sequence[Sequence[int]] | None = None
        self.answers: Mapping[str, tuple[str, ...]] | None = None
        self.left_out = 0

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Image.Image:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.image(index)

    @abstractmethod
    def image(self, index: int) -> Image.Image:
        """Decode or render one image, mode RGB.

        Raises:
            BadImage: The image cannot be read; the error names the file.
        """

    def image_name(self, index: int) -> str:
        """Return the name of an image for tables and error messages."""
        return f"{self.name}[{index}]"

    def text(self, index: int) -> ImageText | None:
        """Return the text of an image; None if the dataset has no texts."""
        return None

    def order(self, generator: np.random.Generator) -> Indices:
        """Return a (N,) permutation of the images for one epoch."""
        return generator.permutation(len(self)).astype(np.int64)

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        """Return the ``pixel_sha256`` of all images, or of some in their order; None if the images are generated.

        Raises:
            BadImage: An image cannot be read.
        """
        chosen = np.arange(len(self)) if indices is None else indices

        def one(index: int) -> str:
            return pixel_sha256(np.asarray(self.image(index)))

        hashes: list[str] = []
        with (
            ThreadPoolExecutor(usable_cores()) as pool,
            task(progress, f"hashing {self.name}", len(chosen), "images") as advance,
        ):
            for start in range(0, len(chosen), HASHED_AT_ONCE):
                hashes += pool.map(one, chosen[start : start + HASHED_AT_ONCE].tolist())
                advance(len(hashes))
        return hashes

    def listing(self) -> Iterable[NDArray[Any]]:
        """Return arrays that, together with classes and targets, distinguish two states of the dataset."""
        return ()

    def record(self) -> SourceRecord:
        """Return the record for ``run.json``: name, number of images and classes, SHA-256 of the listing; no path."""
        return SourceRecord(
            name=self.name, images=len(self), classes=len(self.classes), listing_sha256=self.listing_sha256()
        )

    def listing_sha256(self) -> str:
        """Return the SHA-256 over name, classes, targets and ``listing``."""
        digest = hashlib.sha256("\n".join([self.name, *self.classes]).encode("utf-8", "surrogateescape"))
        for block in (self.targets, *self.listing()):
            digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()


class GeneratedSource(UpstreamDataset):
    """Images that are generated on the fly: they have no hashes, and their settings identify them.

    Args:
        name, classes, targets: see ``UpstreamDataset``.
        image_size: height and width in pixels.
        split, seed: another split or seed gives other images.
        version: version of the generator.
    """

    def __init__(
        self,
        name: str,
        classes: Iterable[str],
        targets: Indices,
        *,
        image_size: int,
        split: str,
        seed: int,
        version: str,
    ):
        super().__init__(name, classes, targets)
        self._image_size, self._split, self._seed, self._version = image_size, split, seed, version

    def hashes(self, progress: Progress, indices: Indices | None = None) -> None:
        return None

    def listing(self) -> Iterable[NDArray[Any]]:
        record = json.dumps(self.record().content(), sort_keys=True)
        return (np.frombuffer(record.encode(), dtype=np.uint8),)

    def record(self) -> SourceRecord:
        return SourceRecord(
            name=self.name,
            images=len(self),
            classes=len(self.classes),
            image_size=self._image_size,
            split=self._split,
            seed=self._seed,
            generator_version=self._version,
        )


class Subset(UpstreamDataset):
    """Some images of a dataset in the given order. The classes stay, so that one head fits both.

    Args:
        source: the dataset.
        indices: (n,) images of ``source``, each at most once.
    """

    def __init__(self, source: UpstreamDataset, indices: Indices):
        super().__init__(source.name, source.classes, source.targets[indices])
        self.source, self.indices = source, np.asarray(indices, dtype=np.int64)
        self.levels = source.levels

    def image(self, index: int) -> Image.Image:
        return self.source.image(int(self.indices[index]))

    def image_name(self, index: int) -> str:
        return self.source.image_name(int(self.indices[index]))

    def text(self, index: int) -> ImageText | None:
        return self.source.text(int(self.indices[index]))

    def order(self, generator: np.random.Generator) -> Indices:
        """Return the order of ``source`` without the other images, so that shards are still read one by one."""
        position = np.full(len(self.source), -1, dtype=np.int64)
        position[self.indices] = np.arange(len(self))
        order = position[self.source.order(generator)]
        return order[order >= 0]

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        return self.source.hashes(progress, self.indices if indices is None else self.indices[indices])

    def listing(self) -> Iterable[NDArray[Any]]:
        return (self.indices,)

    def record(self) -> SourceRecord:
        return self.source.record().changed(super().record(), of_images=len(self.source))

    def listing_sha256(self) -> str:
        return _combined_sha256(super().listing_sha256(), [self.source])


class ConcatDataset(UpstreamDataset):
    """Several datasets one after the other.

    Args:
        name: name for the record.
        sources: the datasets.
        labelled: keep the labels, which requires equal classes in all datasets. If False, all images are unlabelled.
    """

    def __init__(self, name: str, sources: Sequence[UpstreamDataset], *, labelled: bool):
        targets = [part.targets if labelled else np.full(len(part), -1) for part in sources]
        assert not labelled or len({part.classes for part in sources}) == 1
        super().__init__(name, sources[0].classes if labelled else (), np.concatenate(targets))
        self.sources = tuple(sources)
        levels = [part.levels for part in sources]
        self.levels = levels[0] if labelled and all(one == levels[0] for one in levels) else {}
        self._starts = np.cumsum([0, *(len(part) for part in sources)], dtype=np.int64)

    def image(self, index: int) -> Image.Image:
        part, inner = self._locate(index)
        return part.image(inner)

    def image_name(self, index: int) -> str:
        part, inner = self._locate(index)
        return part.image_name(inner)

    def text(self, index: int) -> ImageText | None:
        part, inner = self._locate(index)
        return part.text(inner)

    def order(self, generator: np.random.Generator) -> Indices:
        """Interleave the orders of the datasets evenly, so that shards are still read one by one."""
        orders = [part.order(generator) + start for part, start in zip(self.sources, self._starts[:-1], strict=True)]
        # Item k of a dataset of n comes at (k + u) / n of the epoch, so that every stretch of it has all datasets.
        when = [(np.arange(len(order)) + generator.random(len(order))) / max(len(order), 1) for order in orders]
        return np.concatenate(orders)[np.argsort(np.concatenate(when), kind="stable")]

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        """Return the hashes of the datasets that have any, one dataset after the other; None if none has."""
        chosen = np.arange(len(self)) if indices is None else indices
        found: list[str] | None = None
        for part, start in zip(self.sources, self._starts[:-1], strict=True):
            inside = chosen[(chosen >= start) & (chosen < start + len(part))] - start
            hashes = part.hashes(progress, inside)
            if hashes is not None:
                found = (found or []) + hashes
        return found

    def record(self) -> SourceRecord:
        return super().record().model_copy(update={"parts": [part.record() for part in self.sources]})

    def listing_sha256(self) -> str:
        return _combined_sha256(super().listing_sha256(), self.sources)

    def _locate(self, index: int) -> tuple[UpstreamDataset, int]:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.sources[part], int(index - self._starts[part])


class Relabelled(UpstreamDataset):
    """The images of a dataset under other classes; ``refined`` gives the former ones.

    Args:
        source: the dataset.
        classes: the new class names.
        new: (K,) new class of each class of ``source``.
    """

    def __init__(self, source: UpstreamDataset, classes: Sequence[str], new: Indices):
        super().__init__(source.name, classes, np.asarray(new, dtype=np.int64)[source.targets])
        self.source = source

    def image(self, index: int) -> Image.Image:
        return self.source.image(index)

    def image_name(self, index: int) -> str:
        return self.source.image_name(index)

    def text(self, index: int) -> ImageText | None:
        return self.source.text(index)

    def order(self, generator: np.random.Generator) -> Indices:
        return self.source.order(generator)

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        return self.source.hashes(progress, indices)

    def record(self) -> SourceRecord:
        return self.source.record().changed(super().record())

    def listing_sha256(self) -> str:
        return _combined_sha256(super().listing_sha256(), [self.source])


class LabelledByImage(Relabelled):
    """The images of a dataset with a label of their own each; ``refined`` gives the former labels.

    Args:
        source: the dataset.
        classes: the new class names.
        targets: (N,) new class of each image.
    """

    def __init__(self, source: UpstreamDataset, classes: Sequence[str], targets: Indices):
        UpstreamDataset.__init__(self, source.name, classes, targets)
        self.source = source


def refined(source: UpstreamDataset) -> UpstreamDataset:
    """Return the same images under the classes that they had before they were relabelled."""
    if isinstance(source, Relabelled):
        return refined(source.source)
    if isinstance(source, Subset):
        return Subset(refined(source.source), source.indices)
    return source


def made_on_the_fly(source: UpstreamDataset) -> bool:
    """Return True if all images are generated: none has a hash, and none can be a test image."""
    return source.hashes(NO_PROGRESS, np.array([], dtype=np.int64)) is None


def _combined_sha256(digest: str, sources: Iterable[UpstreamDataset]) -> str:
    """Return a checksum that changes if one of the wrapped datasets changes."""
    records = [source.record() for source in sources]
    parts = [one.listing_sha256 or str(one.content()) for one in records]
    return hashlib.sha256("\n".join([digest, *parts]).encode()).hexdigest()


def draw(source: UpstreamDataset, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw (count,) images, sorted, with every class in proportion to one image more or less.

    Within a class of n images in random order, image k gets the key (k + u) / n, with one random u per class. Each
    class has its share among the smallest keys.
    """
    size = len(source)
    keys, targets = np.empty(size), source.targets
    shuffled = generator.permutation(size)
    by_class = shuffled[np.argsort(targets[shuffled], kind="stable")]
    _, starts, counts = np.unique(targets[by_class], return_index=True, return_counts=True)
    rank = np.arange(size) - np.repeat(starts, counts)
    offset = np.repeat(generator.random(len(counts)), counts)
    keys[by_class] = (rank + offset) / np.repeat(counts, counts)
    return np.sort(np.argsort(keys, kind="stable")[:count]).astype(np.int64)
