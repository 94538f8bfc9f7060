"""Images with masks: the classes, the label of each pixel, and both at the network's size."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.datasets import Manifest, decode_unchanged, mask_names
from usvit.data.io import BadImage, Box, UInt8, coco_file, read_image, read_indices
from usvit.data.loading import Batch, pixel_array
from usvit.data.transforms import Policy, Preprocessing, lesion_cells
from usvit.errors import UsvitError
from usvit.files import read_csv
from usvit.progress import Progress, task
from usvit.resources import usable_cores
from usvit.upstream.segmentation.network import IGNORED

LESION = ("background", "lesion")
_WHITE = 127
"""Masks with a value above this are black and white; others have numbers of classes."""
_LARGEST_LESION = 0.5
"""A mask that covers more of its image than this, with all four corners, is taken for inverted."""


@dataclass(frozen=True)
class MaskClasses:
    """The classes of pixels and their values in mask files."""

    names: tuple[str, ...] = LESION
    values: tuple[int, ...] | None = None
    """Value of each class in the masks; None for lesion against background."""

    @classmethod
    def read(cls, table: str | None) -> "MaskClasses":
        """Read ``segment.table``, a CSV or COCO's ``.json``; without one, the classes are lesion and background.

        Raises:
            UsvitError: The table is missing or damaged, or has fewer than two classes, a value twice or out of range.
        """
        if table is None:
            return cls()
        if table.endswith(".json"):
            categories = {0: LESION[0]} | coco_file(Path(table)).content.names
            values, names = list(categories), list(categories.values())
        else:
            rows = read_csv(Path(table), text=("name",), follow=True, what="segment.table", needed=["value", "name"])
            values, names = rows["value"].tolist(), rows["name"].astype(str).str.strip().tolist()
        right = all(isinstance(one, int) and 0 <= one <= 255 for one in values) and all(names)
        unique = len(set(values)) == len(values) and len(set(names)) == len(names)
        if not right or not unique or not 2 <= len(values) <= IGNORED:
            raise UsvitError(
                f"segment.table {table} needs 2 to {IGNORED} rows, each with a value of its own from 0 to 255 and a "
                "name of its own. Mend the table."
            )
        return cls(tuple(names), tuple(values))

    @property
    def outside(self) -> int:
        """Label of what lies beyond an image: background, or nothing that counts."""
        return 0 if self.values is None else IGNORED

    def labels(self, files: Sequence[Path]) -> UInt8:
        """Read the masks of an image as (H, W) uint8, the number of each pixel's class or ``IGNORED``.

        The manifest has checked that they have the size of the image.

        Raises:
            BadImage: A mask cannot be read, looks inverted, or has no class of the table.
        """
        if self.values is None:
            pictures = [read_image(file).max(axis=2) for file in files]
            largest = max(int(one.max()) for one in pictures)
            lesion = np.logical_or.reduce([one > (_WHITE if largest > _WHITE else 0) for one in pictures])
            corners = lesion[0, 0] and lesion[0, -1] and lesion[-1, 0] and lesion[-1, -1]
            if corners and lesion.mean() > _LARGEST_LESION:
                reason = (
                    f"the lesion would cover all corners and {lesion.mean():.0%} of the image, so the mask is "
                    "inverted: write lesions in white on black"
                )
                raise BadImage(files[0], reason)
            return lesion.astype(np.uint8)
        if len(files) > 1:
            raise BadImage(files[1], "an image has one mask of class numbers, and this is its second")
        table = np.full(256, IGNORED, dtype=np.uint8)
        table[list(self.values)] = np.arange(len(self.values))
        labels: UInt8 = table[read_indices(files[0])]
        if (labels == IGNORED).all():
            raise BadImage(files[0], "none of its grey values is in segment.table")
        return labels


@dataclass(frozen=True)
class MaskedImages:
    """The rows of a manifest that have masks, and how their labels are read."""

    manifest: Manifest
    classes: MaskClasses
    rows: Any = field(init=False, repr=False)
    """``manifest.usable``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.manifest.usable)

    @property
    def masked(self) -> NDArray[np.bool_]:
        """(N,) whether each image has a mask file, which may be empty."""
        return np.array([bool(mask_names(cell)) for cell in self.rows.mask_path], dtype=bool)

    def labels(self, index: int) -> UInt8:
        """Read the labels of one image, (H, W) uint8.

        Raises:
            UsvitError: As ``MaskClasses.labels``; the error names the file as it may be shown.
        """
        row = self.rows.iloc[index]
        files = [self.manifest.roots[row.dataset] / name for name in mask_names(row.mask_path)]
        try:
            return self.classes.labels(files)
        except BadImage as bad:
            raise self.manifest.told(bad) from bad

    def decode(self, index: int) -> tuple[UInt8, Box | None]:
        """Decode one image: (H, W, 3) uint8, and its tissue region."""
        row = self.rows.iloc[index]
        try:
            pixels, tissue, _ = decode_unchanged(self.manifest.image_path(row), int(row.frame), row.sha256)
        except BadImage as bad:
            raise self.manifest.told(bad) from bad
        return pixels, tissue


@dataclass(frozen=True)
class SegmentStore:
    """The images with masks, decoded and resized once; other rows are undefined."""

    pixels: UInt8
    """(N, S, S, 3)."""
    labels: UInt8
    """(N, S, S)."""
    frames: dict[int, tuple[tuple[int, int], Box | None]]
    """Row -> (H, W) of the whole image, and its tissue region."""

    @classmethod
    def build(
        cls, images: MaskedImages, preprocessing: Preprocessing, memory_gb: float, folder: Path, progress: Progress
    ) -> "SegmentStore":
        """Decode all images that have masks.

        Args:
            images: The images.
            preprocessing: Their size.
            memory_gb: Limit for the pixels in memory; more are in a memory-mapped file in ``folder``.
            folder: Folder of that file.
            progress: Shown meanwhile.

        Raises:
            UsvitError: An image or a mask cannot be used.
        """
        size, at = preprocessing.image_size, np.flatnonzero(images.masked)
        pixels = pixel_array((len(images.rows), size, size, 3), memory_gb * 1e9, folder)
        labels = pixel_array((len(images.rows), size, size), memory_gb * 1e9, folder)
        outside = images.classes.outside

        def fill(index: int) -> tuple[int, tuple[tuple[int, int], Box | None]]:
            image, tissue = images.decode(index)
            shape = (image.shape[0], image.shape[1])
            whole = images.labels(index)
            pixels[index] = preprocessing.resized(image, tissue)
            if images.classes.values is None:
                labels[index] = preprocessing.resized_mask(whole > 0, tissue)
            else:
                labels[index] = preprocessing.resized_labels(whole, tissue, outside)
            return index, (shape, tissue)

        frames = {}
        with (
            ThreadPoolExecutor(usable_cores()) as pool,
            task(progress, "decoding images and masks", len(at), "images") as advance,
        ):
            for done, (index, frame) in enumerate(pool.map(fill, at.tolist()), start=1):
                frames[index] = frame
                advance(done)
        return cls(pixels, labels, frames)

    def batches(self, at: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
        """Divide rows into batches of at most ``size``."""
        return [at[start : start + size] for start in range(0, len(at), size)]


class RowsWithLabels:
    """Examples for ``InfiniteLoader``: rows of a store, augmented together with their labels.

    Args:
        store: The images.
        rows: (n,) rows to train on.
        augment: Augmentation of an image, or None.
        outside: Label of what an augmentation brings in from beyond the image.
    """

    def __init__(self, store: SegmentStore, rows: NDArray[np.int64], augment: Policy | None, outside: int):
        self._store, self._rows, self._augment, self._outside = store, rows, augment, outside

    def __len__(self) -> int:
        return len(self._rows)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return generator.permutation(len(self._rows))

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        """Return ``images``, (B, S, S, 3) uint8, and ``labels``, (B, S, S) uint8."""
        images, labels = [], []
        for position, seed in items:
            image, label = self._store.pixels[self._rows[position]], self._store.labels[self._rows[position]]
            if self._augment is not None:
                lesion = lesion_cells(label == 1) if self._outside == 0 else None
                image, view = self._augment.changed(image, seed, lesion)
                label = view.labels_of(label, self._outside)
            images.append(image)
            labels.append(label)
        return {"images": torch.from_numpy(np.stack(images)), "labels": torch.from_numpy(np.stack(labels))}
