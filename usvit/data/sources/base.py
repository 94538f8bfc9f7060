"""What sources share: lists of many names in little memory, order, hashes, and the record of what was there."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.images import pixel_sha256
from usvit.progress import Progress, task
from usvit.resources import usable_cores

Indices = NDArray[np.int64]

HASHED_AT_ONCE = 1024
"""Images that are given to the threads together: a list of millions of pending ones would fill the memory."""


class Names(Sequence[str]):
    """Many strings as one block of bytes: 14 million file names take 0.5 GB and not 1.5, and worker processes share
    them (Python's own strings are copied as soon as a forked process counts their references)."""

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
        """What they are made of, for a checksum."""
        return self._bytes, self._ends


class ListedSource(ABC):
    """A source whose images are listed; implements ``usvit.data.sources.source.Source`` but for ``image``.

    Args:
        name: for the record; no path.
        classes: names in the order of ``targets``; empty where images are unlabelled.
        targets: (N,) class of each image, or -1.
    """

    def __init__(self, name: str, classes: Iterable[str], targets: Indices):
        self._name, self._classes = name, tuple(classes)
        self._targets = np.asarray(targets, dtype=np.int64)

    @property
    def name(self) -> str:
        return self._name

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    @property
    def targets(self) -> Indices:
        return self._targets

    def __len__(self) -> int:
        return len(self._targets)

    @abstractmethod
    def image(self, index: int) -> Image.Image:
        """One picture, mode RGB.

        Raises:
            BadImage: it cannot be read; the file is named.
        """

    def image_name(self, index: int) -> str:
        """What people call image ``index``: for tables and errors."""
        return f"{self.name}[{index}]"

    def order(self, generator: np.random.Generator) -> Indices:
        return generator.permutation(len(self)).astype(np.int64)

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        """``pixel_sha256`` of the images (of some, in their order); None: they are made on the fly."""
        return hash_images(self, np.arange(len(self)) if indices is None else indices, progress)

    def listing(self) -> Iterable[NDArray[Any]]:
        """Arrays that, with classes and targets, tell one state of the source from another."""
        return ()

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "images": len(self),
            "classes": len(self.classes),
            "listing_sha256": self.listing_sha256(),
        }

    def listing_sha256(self) -> str:
        digest = hashlib.sha256("\n".join([self.name, *self.classes]).encode("utf-8", "surrogateescape"))
        for block in (self.targets, *self.listing()):
            digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()


class GeneratedSource(ListedSource):
    """A source whose images are made on the fly: they have no hashes, and what tells two of them apart are settings.

    Args:
        name, classes, targets: as of ``ListedSource``.
        image_size: pixels a side.
        split, seed: images of another split or seed are others.
        version: of what makes them.
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
        told = json.dumps(self.describe(), sort_keys=True)
        return (np.frombuffer(told.encode(), dtype=np.uint8),)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "images": len(self),
            "classes": len(self.classes),
            "image_size": self._image_size,
            "split": self._split,
            "seed": self._seed,
            "generator_version": self._version,
        }


def hash_images(source: Any, indices: Indices, progress: Progress) -> list[str]:
    """``pixel_sha256`` of some images of a source, decoded in threads.

    Raises:
        BadImage: one cannot be read.
    """

    def one(index: int) -> str:
        return pixel_sha256(np.asarray(source.image(index)))

    hashes: list[str] = []
    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        task(progress, f"hashing {source.name}", len(indices), "images") as advance,
    ):
        for start in range(0, len(indices), HASHED_AT_ONCE):
            hashes += pool.map(one, indices[start : start + HASHED_AT_ONCE].tolist())
            advance(len(hashes))
    return hashes


def image_name(source: Any, index: int) -> str:
    """What people call an image of any source."""
    named = getattr(source, "image_name", None)
    return str(named(index)) if named else f"{source.name}[{index}]"
