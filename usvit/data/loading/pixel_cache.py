"""Cache of the decoded pixels of public data sets, with which a second run on the same images starts seconds sooner.

An entry belongs to all images of a run together, with their size and order. Its key changes if the bytes of one of the
files change, if an image should have other pixels (the hashes of the manifest), or if they are decoded by another
version of a library or resized in another way. Pixels are kept after they were compared with the hashes of the
manifest, so an entry that is found has the pixels of the manifest and of the files, however the files were changed.
Hashing the files takes a small part of the time of decoding them. Pixels of private data sets are never kept.
"""

import hashlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from usvit.data.datasets import Manifest, decoder_versions, mask_names
from usvit.data.io import UInt8
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import read_array, regular_file, sha256_of_file, write_atomic
from usvit.resources import cache_dir, usable_cores

logger = logging.getLogger(__name__)

VERSION = 1
"""To be increased whenever images or masks are resized in another way."""
MAX_BYTES = 2_000_000_000
"""Size of all entries together; beyond, those that were not used for longest are removed."""
LARGEST_BYTES = MAX_BYTES // 2
"""Size of the pixels of the largest entry. Larger sets are decoded in each run, which trains for much longer."""

HASHED_BYTES = 4_000_000_000
"""Most bytes of files that are hashed for a key. Data sets with more, such as cine loops, are decoded in each run."""

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
            with regular_file(path, limit=MAX_BYTES) as file:  # a FIFO would block
                arrays = [read_array(file) for _ in range(2)]
                if file.read() != _digest(*arrays):
                    raise ValueError("the hash differs")
            os.utime(path)
        except (OSError, ValueError, MemoryError, UsvitError) as error:
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
        None if a data set is private, or if files cannot be read or are too large to be read for a key.
    """
    if any(one.kept or one.pseudonyms is not None for one in manifest.identities.values()):
        return None
    settings = (preprocessing.image_size, preprocessing.resize, preprocessing.crop, with_lesions)
    digest = hashlib.sha256(json.dumps([*decoder_versions(), VERSION, *settings]).encode())
    rows = manifest.usable
    columns = (rows.dataset, rows.path, rows.frame, rows.mask_path, rows.sha256)
    images = [
        ([manifest.roots[dataset] / name for name in (path, *mask_names(masks))], int(frame), sha256)
        for dataset, path, frame, masks, sha256 in zip(*columns, strict=True)
    ]
    hashes = _file_hashes({path for paths, _, _ in images for path in paths})
    if hashes is None:
        return None
    for paths, frame, sha256 in images:
        digest.update(json.dumps([[hashes[path] for path in paths], frame, sha256]).encode())
    return digest.hexdigest()


def _file_hashes(paths: set[Path]) -> dict[Path, str] | None:
    """Return the SHA-256 of each file; None if one cannot be read, or all together have more than ``HASHED_BYTES``."""
    listed = sorted(paths)
    try:
        if sum(path.stat().st_size for path in listed) > HASHED_BYTES:
            return None
        with ThreadPoolExecutor(usable_cores()) as pool:  # hashing releases the interpreter lock
            return dict(zip(listed, pool.map(partial(sha256_of_file, limit=HASHED_BYTES), listed), strict=True))
    except (OSError, UsvitError):
        return None


def _digest(pixels: UInt8, cells: UInt8) -> bytes:
    digest = hashlib.sha256(json.dumps([pixels.shape, cells.shape]).encode())
    for array in (pixels, cells):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
