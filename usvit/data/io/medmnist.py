"""MedMNIST files: one ``.npz`` holds all images in a training, a validation and a test array.

Source: Yang et al. 2023, Scientific Data 10:41; arrays ``train_images`` (n, H, W) or (n, H, W, 3) uint8,
``train_labels`` (n, 1), and the same for ``val`` and ``test``.
"""

import threading
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage, refuse_frame, refuse_size, refusing
from usvit.data.io.types import UInt8
from usvit.files import file_state, open_regular

PARTS = ("train", "val", "test")
MAX_BYTES = 4_000_000_000
"""Upper bound of all arrays together; BreastMNIST at 224 x 224 has 39 million bytes."""

_lock = threading.Lock()  # files are decoded in threads; the first one opens the arrays, and the others wait


def read_npz_frame(path: Path, frame: int | None) -> UInt8:
    """Return one image; frames are numbered from 0 through train, then val, then test.

    Returns:
        (H, W, 3) uint8.

    Raises:
        BadImage: The file is missing or damaged, has another layout, or has no such frame.
    """
    with refusing(path):
        images, _ = _opened(path)
        refuse_frame(path, frame, sum(len(part) for part in images))
        place = frame or 0
        for part in images:
            if place < len(part):
                break
            place -= len(part)
        pixels = part[place]
        return np.stack([pixels] * 3, axis=2) if pixels.ndim == 2 else pixels.copy()


def npz_labels(path: Path) -> dict[str, list[str]]:
    """Return the labels of the images in each split, as text, in the order of the frames.

    Raises:
        BadImage: The file is missing or damaged, or has another layout.
    """
    with refusing(path):
        _, labels = _opened(path)
        return {part: [str(label) for label in values] for part, values in zip(PARTS, labels, strict=True)}


def _opened(path: Path) -> tuple[list[UInt8], list[NDArray[np.int64]]]:
    status = path.stat()
    with _lock:
        return _load(path, file_state(status))


@lru_cache(maxsize=2)
def _load(path: Path, state: tuple[int, ...]) -> tuple[list[UInt8], list[NDArray[np.int64]]]:
    """Read and keep the arrays; a file that has changed is read again."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > MAX_BYTES:
        raise BadImage(path, f"its header claims {unpacked} bytes (a decompression bomb?)", "too_large")
    images, labels = [], []
    with open_regular(path) as file, np.load(file, allow_pickle=False) as arrays:
        for part in PARTS:
            for name in (f"{part}_images", f"{part}_labels"):
                if name not in arrays:
                    raise BadImage(path, f"it has no array '{name}'; it has {', '.join(arrays)}")
            pixels, values = arrays[f"{part}_images"], arrays[f"{part}_labels"]
            if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or pixels.shape[3:] not in ((), (3,)):
                reason = f"'{part}_images' is not an array of 8-bit images: {pixels.dtype}, {pixels.shape}"
                raise BadImage(path, reason, "unsupported_pixels")
            if values.shape not in ((len(pixels),), (len(pixels), 1)):
                raise BadImage(path, f"'{part}_labels' has the shape {values.shape} for {len(pixels)} images")
            refuse_size(path, pixels.shape[1], pixels.shape[2])
            images.append(pixels)
            labels.append(values.reshape(-1))
    return images, labels
