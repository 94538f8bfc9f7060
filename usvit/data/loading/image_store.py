"""Decoded images of a source: each is decoded once, reduced to a longest side, and kept as uint8."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets import UpstreamDataset
from usvit.data.io import UInt8
from usvit.data.loading.augmented_dataset import decoded_image
from usvit.data.loading.pixel_store import pixel_array, reserve
from usvit.errors import UsvitError
from usvit.files import disk_errors
from usvit.progress import Progress, task
from usvit.resources import usable_cores

AT_ONCE = 1024
"""Images that are given to the threads at once. Submitting millions at once would fill the memory."""
Sizes = NDArray[np.int64]


class ImageStore:
    """The images of a source, decoded: ``pixels`` is (N, D, D, 3) uint8, in memory, in a mapped file or on a device.

    An image keeps its aspect ratio and all of its content: it is reduced until its longest side is D, as FFCV's
    ``max_resolution`` does, and never enlarged. It lies at the upper left of its square; the pixels beside it do not
    count. Crops are thus drawn as for the file, from a picture of the same shape with fewer pixels.

    Args:
        pixels: the squares.
        sizes: (N, 2) width and height of each image in its square, in pixels.
        placed: the pixels are on the device of the training.
    """

    def __init__(self, pixels: torch.Tensor, sizes: Sizes, *, placed: bool = False):
        self.pixels, self.sizes, self.placed = pixels, sizes, placed

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def build(
        cls, source: UpstreamDataset, side: int, *, memory_gb: float | None, folder: Path, progress: Progress
    ) -> "ImageStore":
        """Decode all images of a source, in memory or in a memory-mapped file without a name.

        Args:
            source: the images.
            side: D in pixels.
            memory_gb: limit for the pixels in memory, in GB; a lower limit is half of the free memory. None for that.
            folder: folder of the memory-mapped file.
            progress: shown while images are decoded.

        Raises:
            UnusableImage: An image cannot be read.
            UsvitError: There is no space for the memory-mapped file.
        """
        limit = float("inf") if memory_gb is None else memory_gb * 1e9
        pixels = pixel_array((len(source), side, side, 3), limit, folder)
        sizes = np.empty((len(source), 2), dtype=np.int64)
        _fill(source, pixels, sizes, progress)
        return cls(torch.from_numpy(pixels), sizes)

    @classmethod
    def write(cls, source: UpstreamDataset, side: int, path: Path, progress: Progress) -> None:
        """Decode all images of a source into a file, which several processes of a machine ``open``.

        Raises:
            UnusableImage: An image cannot be read.
            UsvitError: There is no space for the file.
        """
        with disk_errors(path), path.open("wb") as file:
            reserve(file.fileno(), _file_size(len(source), side))
        _fill(source, *_mapped(path, len(source), side), progress)

    @classmethod
    def open(cls, path: Path, count: int, side: int) -> "ImageStore":
        """Map the file that ``write`` has written; it may be removed afterwards."""
        with disk_errors(path):
            pixels, sizes = _mapped(path, count, side)
        return cls(torch.from_numpy(pixels), sizes)

    def on(self, device: torch.device) -> "ImageStore":
        """Copy the pixels to a device; on a CPU, both share their memory.

        Raises:
            UsvitError: They do not fit.
        """
        try:
            return ImageStore(self.pixels.to(device), self.sizes, placed=True)
        except torch.OutOfMemoryError as error:
            raise UsvitError(
                f"The {len(self)} decoded images take {self.pixels.nbytes / 1e9:.1f} GB, more than the device has "
                "free. Set source.decoded=memory, or a smaller source.decoded_size."
            ) from error

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the squares of ``rows``, (B,) int64 on the device of the pixels."""
        return self.pixels.index_select(0, rows)

    def image(self, index: int) -> Image.Image:
        """Return an image of mode RGB; the pixels are on the host."""
        width, height = self.sizes[index].tolist()
        return Image.fromarray(self.pixels[index, :height, :width].numpy())


class StoredSource(UpstreamDataset):
    """The images of a source, from a store on the host.

    Args:
        source: the source.
        store: its images in the same order.
    """

    def __init__(self, source: UpstreamDataset, store: ImageStore):
        super().__init__(source.name, source.classes, source.targets)
        self.source, self.store, self.levels = source, store, source.levels

    def image(self, index: int) -> Image.Image:
        return self.store.image(index)

    def image_name(self, index: int) -> str:
        return self.source.image_name(index)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return self.source.order(generator)


def fitted(image: Image.Image, side: int) -> Image.Image:
    """Reduce an image to a longest side in pixels (bicubic, antialiased); a smaller one is returned as it is."""
    longest = max(image.size)
    if longest <= side:
        return image
    width, height = (max(1, round(extent * side / longest)) for extent in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)


def store_bytes(count: int, side: int) -> int:
    """Return the number of bytes that the pixels of a store take."""
    return count * side * side * 3


def _fill(source: UpstreamDataset, pixels: UInt8, sizes: Sizes, progress: Progress) -> None:
    """Decode the images in threads: Pillow decodes and resizes without Python's lock."""
    side = pixels.shape[1]

    def one(index: int) -> None:
        image = fitted(decoded_image(source, index), side)
        pixels[index, : image.height, : image.width] = np.asarray(image)
        sizes[index] = image.size

    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        task(progress, "decoding images", len(source), "images") as advance,
    ):
        for start in range(0, len(source), AT_ONCE):
            stop = min(start + AT_ONCE, len(source))
            for done, _ in enumerate(pool.map(one, range(start, stop)), start=start + 1):
                advance(done)


def _mapped(path: Path, count: int, side: int) -> tuple[UInt8, Sizes]:
    sizes: Sizes = np.memmap(path, dtype=np.int64, mode="r+", shape=(count, 2))
    pixels: UInt8 = np.memmap(path, dtype=np.uint8, mode="r+", shape=(count, side, side, 3), offset=sizes.nbytes)
    return pixels, sizes


def _file_size(count: int, side: int) -> int:
    return 2 * np.dtype(np.int64).itemsize * count + store_bytes(count, side)
