"""Cache of the decoded pixels of public data sets, with which a second run on the same images starts seconds sooner.

An entry belongs to all images of a run together, with their size and order. Its key changes if one of the files is
replaced (``examination_cache.image_key``), if an image should have other pixels (the hashes of the manifest), or if
they are resized in another way. Pixels of private data sets are never kept.
"""

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from usvit.data.datasets import Manifest, image_key, mask_names
from usvit.data.io import UInt8
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import open_regular, write_atomic
from usvit.resources import cache_dir

logger = logging.getLogger(__name__)

VERSION = 1
"""To be increased whenever images or masks are resized in another way."""
MAX_BYTES = 2_000_000_000
"""Size of all entries together; beyond, those that were not used for longest are removed."""
LARGEST_BYTES = MAX_BYTES // 2
"""Size of the pixels of the largest entry. Larger sets are decoded in each run, which trains for much longer."""

Pixels = tuple[UInt8, UInt8 | None]
"""``pixels`` and ``lesions`` of a ``PixelStore``."""


class PixelCache:
    """The entries in the user's cache folder. If it cannot be read or written, nothing is found and nothing kept.

    Args:
        folder: The folder. Default: ``pixels`` in the cache folder.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = folder or cache_dir() / "pixels"

    def load(self, key: str) -> Pixels | None:
        """Return the pixels of an entry, compared with the hash that ends its file; None if there is none."""
        path = self.folder / key
        try:
            with open_regular(path) as file:
                arrays = [np.load(file, allow_pickle=False) for _ in range(2)]
                if file.read() != _digest(*arrays):
                    raise ValueError("the hash differs")
            os.utime(path)
        except (OSError, ValueError, EOFError) as error:
            if not isinstance(error, FileNotFoundError):
                logger.debug(f"The cache {path} is not used: {type(error).__name__}")
            return None
        pixels, lesions = arrays
        return pixels, lesions if len(lesions) == len(pixels) else None

    def save(self, key: str, pixels: UInt8, lesions: UInt8 | None) -> None:
        """Keep pixels in a file that only its owner may read, and remove old entries if all take too much space."""
        if pixels.nbytes > LARGEST_BYTES:
            return
        cells = np.empty((0, 0, 0), dtype=np.uint8) if lesions is None else lesions

        def write(file: BinaryIO) -> None:
            np.save(file, pixels, allow_pickle=False)
            np.save(file, cells, allow_pickle=False)
            file.write(_digest(pixels, cells))

        try:
            write_atomic(self.folder / key, write, mode=0o600)
            self._remove_old()
        except (OSError, UsvitError) as error:
            logger.debug(f"The cache {self.folder} is not written: {type(error).__name__}")

    def _remove_old(self) -> None:
        entries = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self.folder.iterdir())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= MAX_BYTES:
                break
            path.unlink(missing_ok=True)
            total -= size


def pixels_key(manifest: Manifest, preprocessing: Preprocessing, with_lesions: bool) -> str | None:
    """Return the key of the pixels of all usable images of a manifest.

    Returns:
        None if a data set is private, or if a file cannot be found or has just been modified.
    """
    if any(one.kept or one.pseudonyms is not None for one in manifest.identities.values()):
        return None
    settings = (preprocessing.image_size, preprocessing.resize, preprocessing.crop, with_lesions)
    digest = hashlib.sha256(json.dumps([VERSION, *settings]).encode())
    rows = manifest.usable
    columns = (rows.dataset, rows.path, rows.frame, rows.mask_path, rows.sha256)
    for dataset, path, frame, masks, sha256 in zip(*columns, strict=True):
        root = manifest.roots[dataset]
        key = image_key(root / path, int(frame), [root / name for name in mask_names(masks)])
        if key is None:
            return None
        digest.update(key + sha256.encode())
    return digest.hexdigest()


def _digest(pixels: UInt8, cells: UInt8) -> bytes:
    digest = hashlib.sha256(json.dumps([pixels.shape, cells.shape]).encode())
    for array in (pixels, cells):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
