"""Descriptions of images, which many tests share: describing one takes longer than all else."""

import os
import pickle
import uuid
from pathlib import Path

from usvit.data.io import UInt8, pixel_sha256
from usvit.data.near_duplicates import Description, describe


class Described:
    """``describe`` that remembers: in this process, and in a folder for the other workers of pytest-xdist."""

    def __init__(self) -> None:
        self.known: dict[str, Description] = {}
        self.folder: Path | None = None

    def __call__(self, image: UInt8) -> Description:
        sha256 = pixel_sha256(image)
        if sha256 not in self.known:
            self.known[sha256] = self._shared(sha256, image)
        return self.known[sha256]

    def _shared(self, sha256: str, image: UInt8) -> Description:
        if self.folder is None:
            return describe(image)
        path = self.folder / sha256
        if path.exists():
            found: Description = pickle.loads(path.read_bytes())
            return found
        made = describe(image)
        partial = path.with_suffix(f".{uuid.uuid4().hex}")
        partial.write_bytes(pickle.dumps(made))
        os.replace(partial, path)
        return made


described = Described()
