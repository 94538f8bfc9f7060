"""From the manifest to batches: decode and resize once, then only gather and augment.

``PixelStore`` holds every image of a run at the network's size; ``TrainBatches`` is an endless stream over it
(``usvit.data.stream``).
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from usvit.data.augment import Augment
from usvit.data.images import BadImage, UInt8, decode, pixel_sha256, read_masks
from usvit.data.manifest import Manifest, mask_names
from usvit.data.preprocessing import Preprocessing
from usvit.data.stream import Batch, Stream
from usvit.data.view import CELLS, lesion_cells
from usvit.files import disk_errors
from usvit.progress import Progress, task


class Store(Protocol):
    """What batches are taken of: one row an image, its pixels or what a network made of them."""

    @property
    def lesions(self) -> UInt8 | None:
        """(N, CELLS, CELLS), where each lesion lies; read by augmentation alone."""

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]: ...

    def __len__(self) -> int: ...


class PixelStore:
    """Every image of a run, decoded and resized once: ``pixels`` is (N, S, S, 3) uint8.

    ``lesions`` is (N, CELLS, CELLS) uint8, where each lesion lies (``usvit.data.view``), all 0 where no
    mask tells, or None where it was not asked for.

    The pixels lie in memory up to a bound, above it in a memory-mapped temporary file (made in
    ``folder`` and without a name there where the system allows, so that nothing stays behind a killed run).
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
    ) -> "PixelStore":
        """Decode all usable images of a manifest, in its order.

        Args:
            manifest: the images.
            preprocessing: their size, and how they are brought to it.
            memory_gb: the most that ``pixels`` may take in memory.
            folder: for the memory-mapped file.
            progress: shown while files are decoded.
            with_lesions: read the masks too, so that augmentation keeps the lesions in view.

        Raises:
            BadImage: an image or a mask has changed since the manifest was built.
            UsvitError: no space for the memory-mapped file.
        """
        rows = manifest.usable
        shape = (len(rows), preprocessing.image_size, preprocessing.image_size, 3)
        pixels: UInt8
        if np.prod(shape, dtype=np.int64) <= memory_gb * 1e9:
            pixels = np.empty(shape, dtype=np.uint8)
        else:
            with disk_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
                if hasattr(os, "posix_fallocate"):  # a full disk shows now, and not as a crash while writing
                    os.posix_fallocate(file.fileno(), 0, int(np.prod(shape, dtype=np.int64)))
                pixels = np.memmap(file, dtype=np.uint8, mode="r+", shape=shape)

        lesions = np.zeros((len(rows), CELLS, CELLS), dtype=np.uint8) if with_lesions else None

        def fill(index: int) -> None:
            try:
                decode_into(index)
            except BadImage as bad:
                raise manifest.told(bad) from bad

        def decode_into(index: int) -> None:
            row = rows.iloc[index]
            image, tissue = decode(manifest.image_path(row), int(row.frame))
            if pixel_sha256(image) != row.sha256:
                reason = "its pixels are not those of the manifest: the file was changed or exchanged since"
                raise BadImage(manifest.image_path(row), reason)
            pixels[index] = preprocessing.resized(image, tissue)
            if lesions is not None and (masks := _mask_paths(manifest, row)):
                mask = read_masks(masks, image.shape[:2])
                lesions[index] = lesion_cells(preprocessing.resized_mask(mask, tissue))

        with (
            ThreadPoolExecutor(os.cpu_count()) as pool,
            task(progress, "decoding images", len(rows), "images") as advance,
        ):
            for done, _ in enumerate(pool.map(fill, range(len(rows))), start=1):
                advance(done)
        return cls(pixels, lesions)

    def __getitem__(self, rows: NDArray[np.int64]) -> UInt8:
        return self.pixels[rows]

    def __len__(self) -> int:
        return len(self.pixels)


def _mask_paths(manifest: Manifest, row: pd.Series) -> list[Path]:
    return [manifest.roots[row.dataset] / name for name in mask_names(row.mask_path)]


class TrainBatches(Stream):
    """Batches of a store: ``images``, B of its rows, pixels (B, S, S, 3) uint8, and ``targets``, (B,) int64.

    Args:
        store: the pixels, or features.
        rows: (n,) rows of the store to train on.
        targets: (n,) class index of each.
        batch_size: images a batch; epochs run into each other, so that every batch is full.
        augment: None for none.
        seed: of order and augmentation.
        workers: processes that augment; 0 for the main process.
    """

    def __init__(
        self,
        store: Store,
        rows: NDArray[np.int64],
        targets: NDArray[np.int64],
        *,
        batch_size: int,
        augment: Augment | None,
        seed: int,
        workers: int = 0,
    ):
        super().__init__(_Augmented(store, rows, targets, augment), batch_size=batch_size, seed=seed, workers=workers)


class _Augmented:
    """The store's ``rows``, each image augmented by the seed that comes with its position."""

    def __init__(self, store: Store, rows: NDArray[np.int64], targets: NDArray[np.int64], augment: Augment | None):
        self.store, self.rows, self.targets, self.augment = store, rows, targets, augment

    def __len__(self) -> int:
        return len(self.rows)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return generator.permutation(len(self.rows))

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        at = [position for position, _ in items]
        rows = self.rows[at]
        images = self.store[rows]
        if self.augment is not None:
            lesions = [None] * len(rows) if self.store.lesions is None else self.store.lesions[rows]
            seeds = [seed for _, seed in items]
            images = np.stack([*map(self.augment, images, seeds, lesions)])
        return {"images": torch.from_numpy(images), "targets": torch.from_numpy(self.targets[at])}


def eval_batches(store: Store, rows: NDArray[np.int64], batch_size: int) -> Iterator[torch.Tensor]:
    """The images of ``rows`` in their order, unaugmented: B rows of the store, pixels (B, S, S, 3) uint8."""
    for start in range(0, len(rows), batch_size):
        yield torch.from_numpy(store[rows[start : start + batch_size]])
