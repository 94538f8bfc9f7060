"""Cache of arrays that take long to compute, such as decoded pixels, or features of frozen networks."""

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from usvit.errors import UsvitError
from usvit.files import read_array, regular_file, write_atomic
from usvit.resources import cache_dir

logger = logging.getLogger(__name__)

MAX_BYTES = 2_000_000_000
"""Size of all entries of a kind together; beyond, those that were not used for longest are removed."""
LARGEST_BYTES = MAX_BYTES // 2
"""Size of the arrays of the largest entry. Larger ones are made in each run, which trains for much longer."""

Array = NDArray[Any]


class ArrayCache:
    """The entries of one kind in the user's cache folder.

    An entry is found only if it is whole, compared with the hash that ends its file. If the folder cannot be read or
    written, nothing is found and nothing kept.

    Args:
        kind: Name of the entries' folder within the cache folder.
        folder: The folder itself, instead.
    """

    def __init__(self, kind: str, folder: Path | None = None):
        self.folder = folder or cache_dir() / kind

    def load(self, key: str, count: int) -> list[Array] | None:
        """Return the arrays of an entry, which has ``count`` of them; None if there is no such entry."""
        path = self.folder / key
        try:
            with regular_file(path, limit=MAX_BYTES) as file:  # a FIFO would block
                arrays = [read_array(file) for _ in range(count)]
                if file.read() != _digest(arrays):
                    raise ValueError("the hash differs")
            os.utime(path)
        except (OSError, ValueError, MemoryError, UsvitError) as error:
            logger.debug(f"The cache {path} is not used: {type(error).__name__}")
            return None
        return arrays

    def save(self, key: str, *arrays: Array) -> None:
        """Keep arrays in a file that only its owner may read, and remove old entries if all take too much space."""
        if sum(one.nbytes for one in arrays) > LARGEST_BYTES:
            return

        def write(file: BinaryIO) -> None:
            for one in arrays:
                np.save(file, one, allow_pickle=False)
            file.write(_digest(arrays))

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


def _digest(arrays: "list[Array] | tuple[Array, ...]") -> bytes:
    digest = hashlib.sha256(json.dumps([(one.shape, one.dtype.str) for one in arrays]).encode())
    for one in arrays:
        digest.update(np.ascontiguousarray(one).data)
    return digest.digest()
