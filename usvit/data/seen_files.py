"""Files of what was seen, which ``model.json`` names beside it and which are checked before they are read."""

import functools
import mmap
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from usvit.errors import UsvitError
from usvit.files import regular_file, sha256_of_file, write_bytes

PARTS = ("train", "val", "upstream")
HASH_BYTES = 32


@dataclass(frozen=True)
class SeenFile:
    """A file about images that were seen; each kind says under which key it is named, and how large it may be."""

    KEY: ClassVar[str]
    """In ``model.json``."""
    SUFFIX: ClassVar[str]
    WHAT: ClassVar[str]
    """What it holds of each image, in words."""
    MAX_COUNT: ClassVar[int]
    MAX_BYTES_EACH: ClassVar[int]
    EXACT: ClassVar[bool]
    """Whether each image takes ``MAX_BYTES_EACH``, neither more nor less."""

    path: Path
    part: str
    """``train``, ``val`` or ``upstream``."""
    count: int
    """Images with different pixels."""
    sha256: str
    """Of the file."""

    def __len__(self) -> int:
        return self.count

    def entry(self) -> dict[str, Any]:
        """As ``model.json`` names it."""
        return {"file": self.path.name, "part": self.part, "count": self.count, "sha256": self.sha256}

    @classmethod
    def checked(cls, entry: Any, folder: Path | None) -> Self:
        """The file that a passport names.

        Args:
            entry: what stands in the passport.
            folder: where the passport lies.

        Raises:
            UsvitError: the entry is damaged or asks for too much, or the file is missing, damaged or another one.
        """
        try:
            name, part, count, sha256 = (entry[key] for key in ("file", "part", "count", "sha256"))
            # A plain name: a passport from elsewhere must not make us read what lies outside its folder.
            sound = re.fullmatch(rf"seen-[0-9a-f]{{16}}\.{cls.SUFFIX}", name) and part in PARTS
            sound = sound and isinstance(count, int) and count > 0
        except (TypeError, KeyError):
            sound = False
        if not sound:
            raise UsvitError(f"A passport's '{cls.KEY}' names files in an unknown way ({entry!r:.200}). Update usvit.")
        if count > cls.MAX_COUNT:
            raise UsvitError(f"A passport's '{cls.KEY}' names {count} {cls.WHAT}; at most {cls.MAX_COUNT} are read.")
        if folder is None:
            raise UsvitError(f"The passport names the file {name} beside it, but it was given without its folder.")
        path = folder / name
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, for ever
                raise UsvitError(f"{path} is no regular file. Copy it again, with the rest of its folder.")
            if status.st_size > count * cls.MAX_BYTES_EACH:
                raise UsvitError(f"{path} is larger than the model.json beside it says. Copy it again.")
            found = _sha256(path, status.st_size, status.st_mtime_ns)
        except OSError as error:
            raise UsvitError(
                f"Cannot read {path} ({error.strerror}), which lists the images that the network of the model.json "
                "beside it has seen. Copy it again, with the rest of its folder."
            ) from error
        if found != sha256 or (cls.EXACT and status.st_size != count * cls.MAX_BYTES_EACH):
            raise UsvitError(
                f"{path} is damaged or another file: its SHA-256 is not the one in the model.json beside it. Copy it "
                "again."
            )
        return cls(path, part, count, sha256)


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Of a file as it is now: a passport is asked several times in one run."""
    return sha256_of_file(path)


class HashFile(SeenFile):
    """Sorted pixel hashes; looked up on the disk, never held as text."""

    KEY, SUFFIX, WHAT = "seen_sha256", "sha256", "hashes"
    MAX_COUNT, MAX_BYTES_EACH, EXACT = 100_000_000, HASH_BYTES, True

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._content[index * HASH_BYTES : (index + 1) * HASH_BYTES])

    def __contains__(self, sha256: object) -> bool:
        try:
            wanted = bytes.fromhex(str(sha256))
        except ValueError:
            return False
        at = bisect_left(self, wanted)
        return at < self.count and self[at] == wanted

    @functools.cached_property
    def _content(self) -> mmap.mmap:
        with regular_file(self.path) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def write_hash_file(folder: Path, part: str, hashes: Iterable[str]) -> dict[str, Any]:
    """Write a file of hashes, named after its content, each hash once, and return its entry for ``model.json``.

    Args:
        folder: where ``model.json`` will lie.
        part: ``train``, ``val`` or ``upstream``.
        hashes: in hexadecimal digits.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    raw = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=f"S{HASH_BYTES}")
    content = np.unique(raw)  # bytes compare as the hashes' digits do
    name = folder / "seen.sha256"
    write_bytes(name, content.tobytes())
    sha256 = sha256_of_file(name)
    path = name.replace(folder / f"seen-{sha256[:16]}.{HashFile.SUFFIX}")
    return HashFile(path, part, len(content), sha256).entry()
