"""Decoded images of a run, and batches of them: images are decoded and resized once, then only gathered and augmented.

``PixelStore`` holds every image of a run at the network's size; ``TrainBatches`` is an ``InfiniteLoader`` over it.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.datasets import Manifest, decode_unchanged, mask_names
from usvit.data.io import BadImage, UInt8, read_masks
from usvit.data.loading.array_cache import ArrayCache
from usvit.data.loading.infinite_loader import Batch, InfiniteLoader
from usvit.data.loading.pixel_cache import pixels_key
from usvit.data.transforms import CELLS, Policy, Preprocessing, box_of, lesion_cells
from usvit.files import disk_errors
from usvit.progress import Progress, task
from usvit.resources import free_memory, usable_cores

_FREE_SHARE = 0.5
"""Share of the free memory that the pixels may take; the network, its optimizer and other processes need the rest."""


class Store(Protocol):
    """Interface of a store with one row per image: its pixels, or features of them."""

    @property
    def lesions(self) -> UInt8 | None:
        """(N, CELLS, CELLS) lesion cells of each image, used only by augmentation."""

    def __getitem__(self, rows: NDArray[np.int64]) -> Any:
        """Return the rows, as an array or as a tensor on the device."""

    def __len__(self) -> int: ...


class PixelStore:
    """All images of a run, decoded and resized once: ``pixels`` is (N, S, S, 3) uint8.

    ``lesions`` is (N, CELLS, CELLS) uint8, the cells of each lesion (``usvit.data.transforms.geometry``), 0 for images
    without a mask; or None if lesions were not requested.

    The pixels are in memory up to a limit, and above it in a memory-mapped temporary file in ``folder``, whose pages
    the system gives back when memory is short. If the platform allows, the file has no name, so that a killed run
    leaves nothing behind.
    """

    def __init__(self, pixels: UInt8, lesions: UInt8 | None = None):
        self.pixels, self.lesions = pixels, lesions

    @classmethod
    def build(
        cls,
        manifest: Manifest,
        preprocessing: Preprocessing,
        *,
        memory_gb: float,
        folder: Path,
        progress: Progress,
        with_lesions: bool = True,
        cache: bool | None = None,
    ) -> "PixelStore":
        """Decode all usable images of a manifest, in its order, or take them from a cache.

        Args:
            manifest: the images.
            preprocessing: size of the images, and how they are resized.
            memory_gb: limit for ``pixels`` in memory, in GB; a lower limit is ``_FREE_SHARE`` of the free memory.
            folder: folder of the memory-mapped file.
            progress: shown while files are decoded.
            with_lesions: read the masks too, so that augmentation keeps the lesions in view.
            cache: use the pixels that an earlier run has decoded from the same, unchanged files (``pixel_cache``);
                False decodes all images again. In either case they are kept for later runs; None uses no cache.

        Raises:
            BadImage: An image or a mask has changed since the manifest was built.
            UsvitError: There is no space for the memory-mapped file.
        """
        rows = manifest.usable
        shape = (len(rows), preprocessing.image_size, preprocessing.image_size, 3)
        pixels = pixel_array(shape, memory_gb * 1e9, folder)
        key = None
        if cache is not None and not isinstance(pixels, np.memmap):
            key = pixels_key(manifest, preprocessing, with_lesions)
        if cache and key is not None and (found := ArrayCache("pixels").load(key, 2)) is not None:
            return cls(found[0], found[1] if with_lesions else None)
        lesions = np.zeros((len(rows), CELLS, CELLS), dtype=np.uint8) if with_lesions else None

        def fill(index: int) -> None:
            try:
                decode_into(index)
            except BadImage as bad:
                raise manifest.told(bad) from bad

        def decode_into(index: int) -> None:
            row = rows.iloc[index]
            image, tissue, _ = decode_unchanged(manifest.image_path(row), int(row.frame), row.sha256)
            pixels[index] = preprocessing.resized(image, tissue)
            if lesions is not None and (names := mask_names(row.mask_path)):
                mask = read_masks([manifest.roots[row.dataset] / name for name in names], image.shape[:2])
                lesions[index] = lesion_cells(preprocessing.resized_mask(mask, tissue))

        with (
            ThreadPoolExecutor(usable_cores()) as pool,
            task(progress, "decoding images", len(rows), "images") as advance,
        ):
            for done, _ in enumerate(pool.map(fill, range(len(rows))), start=1):
                advance(done)
        if key is not None:
            empty = np.empty((0, CELLS, CELLS), dtype=np.uint8)
            ArrayCache("pixels").save(key, pixels, empty if lesions is None else lesions)
        return cls(pixels, lesions)

    @cached_property
    def boxes(self) -> NDArray[np.int64]:
        """(N, 4) ``Box`` of the picture in each image."""
        return np.array([box_of(image) for image in self.pixels], dtype=np.int64).reshape(-1, 4)

    def __getitem__(self, rows: NDArray[np.int64]) -> UInt8:
        return self.pixels[rows]

    def __len__(self) -> int:
        return len(self.pixels)


def pixel_array(shape: tuple[int, ...], limit: float, folder: Path) -> UInt8:
    """Return an empty array for pixels, in memory or, if it is too large, in a memory-mapped file without a name.

    Args:
        shape: shape of the array.
        limit: limit for the array in memory, in bytes; a lower limit is ``_FREE_SHARE`` of the free memory.
        folder: folder of the file.

    Raises:
        UsvitError: There is no space for the file.
    """
    free, size = free_memory(), int(np.prod(shape, dtype=np.int64))
    if size <= (limit if free is None else min(limit, _FREE_SHARE * free)):
        return np.empty(shape, dtype=np.uint8)
    with disk_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        reserve(file.fileno(), size)
        return np.memmap(file, dtype=np.uint8, mode="r+", shape=shape)


def reserve(file: int, size: int) -> None:
    """Give a file its size on disk, so that a full disk is reported here instead of crashing later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


@dataclass(frozen=True)
class UnitsOfRows:
    """Units (patients, lesions, ...) of n training images, and how each image counts."""

    numbers: NDArray[np.int64] | None = None
    """(n,) number of the unit of each image. The views of a unit then follow each other in the order of an epoch, and
    batches have the key ``units``."""
    views: int | None = None
    """Views of a unit in an epoch at most, drawn again for each epoch; None for all. For ``numbers`` alone."""
    votes: NDArray[np.float32] | None = None
    """(n,) weight of each image, which batches have under the key ``votes``."""


SINGLE_IMAGES = UnitsOfRows()
"""Images that count alone and equally."""


class TrainBatches(InfiniteLoader):
    """Endless training batches of a store: ``images``, B rows such as (B, S, S, 3) uint8, and ``targets``, (B,) int64.

    Args:
        store: pixels or features.
        rows: (n,) rows of the store to train on.
        targets: (n,) class index of each row.
        batch_size: images per batch. Epochs run into each other, so that every batch is full.
        augment: augmentation of one image, or None.
        seed: seed of order and augmentation.
        workers: processes that augment; 0 for the main process.
        units: units of the n images.
        masked: (N,) whether the lesion mask of each image of the store is known, or None. If given, batches also have
            ``lesions``, (B, CELLS, CELLS) uint8, which lie where the augmentation has moved them, and ``masked``, (B,).
    """

    def __init__(
        self,
        store: Store,
        rows: NDArray[np.int64],
        targets: NDArray[np.int64],
        *,
        batch_size: int,
        augment: Policy | None,
        seed: int,
        workers: int = 0,
        units: UnitsOfRows = SINGLE_IMAGES,
        masked: NDArray[np.bool_] | None = None,
    ):
        examples = AugmentedRows(store, rows, targets, augment, units, masked)
        super().__init__(examples, batch_size=batch_size, seed=seed, workers=workers)


class ShuffledRows:
    """Rows of a store in a new order each epoch, with the target and the augmentation of each."""

    def __init__(
        self,
        rows: NDArray[np.int64],
        targets: NDArray[np.int64],
        augment: Policy | None,
        units: UnitsOfRows = SINGLE_IMAGES,
    ):
        self.rows, self.targets, self.augment, self.units = rows, targets, augment, units
        self._length = len(rows)
        if units.numbers is not None and units.views is not None:
            self._length = int(np.minimum(np.unique(units.numbers, return_counts=True)[1], units.views).sum())

    def __len__(self) -> int:
        return self._length

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        order = generator.permutation(len(self.rows))
        if self.units.numbers is None:
            return order
        numbers = self.units.numbers[order]
        found, first = np.unique(numbers, return_index=True)
        place = first[np.searchsorted(found, numbers)]  # a unit stands where its first view was drawn
        together = np.argsort(place, kind="stable")
        starts = np.flatnonzero(np.diff(place[together], prepend=-1))
        nth = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        return order[together[nth < (self.units.views or len(order))]]

    def counted(self, at: list[int]) -> Batch:
        """Return ``targets``, (B,), of the rows of a batch, and their ``units`` and ``votes`` if there are any."""
        batch = {"targets": torch.from_numpy(self.targets[at])}
        if self.units.numbers is not None:
            batch["units"] = torch.from_numpy(self.units.numbers[at])
        if self.units.votes is not None:
            batch["votes"] = torch.from_numpy(self.units.votes[at])
        return batch


class AugmentedRows(ShuffledRows):
    """The ``rows`` of a store, each image augmented with the seed of its position."""

    def __init__(
        self,
        store: Store,
        rows: NDArray[np.int64],
        targets: NDArray[np.int64],
        augment: Policy | None,
        units: UnitsOfRows = SINGLE_IMAGES,
        masked: NDArray[np.bool_] | None = None,
    ):
        assert masked is None or store.lesions is not None
        super().__init__(rows, targets, augment, units)
        self.store, self.masked = store, masked

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        at = [position for position, _ in items]
        rows = self.rows[at]
        images = self.store[rows]
        known = None if self.store.lesions is None else self.store.lesions[rows]
        lesions = [None] * len(rows) if known is None else known
        if self.augment is not None and self.masked is None:
            seeds = [seed for _, seed in items]
            images = np.stack([*map(self.augment, images, seeds, lesions)])
        elif self.augment is not None:
            changed = [
                self.augment.changed(image, seed, lesion)
                for image, (_, seed), lesion in zip(images, items, lesions, strict=True)
            ]
            images = np.stack([image for image, _ in changed])
            known = np.stack([view.of(lesion) for (_, view), lesion in zip(changed, lesions, strict=True)])
        batch = {"images": torch.from_numpy(images), **self.counted(at)}
        if self.masked is not None and known is not None:
            batch |= {"lesions": torch.from_numpy(known), "masked": torch.from_numpy(self.masked[rows])}
        return batch


def eval_batches(store: Store, rows: NDArray[np.int64], batch_size: int) -> Iterator[torch.Tensor]:
    """Iterate over the images of ``rows`` in their order, without augmentation, such as (B, S, S, 3) uint8.

    They are on the device of the store.
    """
    for start in range(0, len(rows), batch_size):
        yield torch.as_tensor(store[rows[start : start + batch_size]])
