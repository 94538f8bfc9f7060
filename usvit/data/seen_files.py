"""Files that ``model.json`` names beside it, checked before they are read: lists of pixel hashes, copy descriptions."""

import functools
import mmap
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usvit.data.seen_copies import MAX_BYTES_EACH, MAX_DESCRIBED
from usvit.errors import UsvitError
from usvit.files import regular_file, sha256_of_file, write_bytes

PARTS = ("train", "val", "upstream")
HASH_BYTES = 32
MAX_HASHED = 100_000_000
"""Hashes in one file."""
_NAMES = {
    "seen_sha256": re.compile(r"seen-[0-9a-f]{16}\.sha256"),
    "seen_copies": re.compile(r"seen-[0-9a-f]{16}\.copies"),
}


@dataclass(frozen=True)
class HashFile:
    """A file of sorted hashes that a passport names; looked up on the disk, never held as text."""

    path: Path
    part: str
    """``train``, ``val`` or ``upstream``."""
    count: int
    sha256: str
    """Of the file."""

    def __len__(self) -> int:
        return self.count

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

    def entry(self) -> dict[str, Any]:
        """As ``model.json`` names it."""
        return {"file": self.path.name, "part": self.part, "count": self.count, "sha256": self.sha256}


def write_hash_file(folder: Path, part: str, hashes: Iterable[str]) -> dict[str, Any]:
    """Write a file of hashes, named after its content, each hash once, and return its entry for ``model.json``."""
    raw = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=f"S{HASH_BYTES}")
    content = np.unique(raw)  # bytes compare as the hashes' digits do
    name = folder / "seen.sha256"
    write_bytes(name, content.tobytes())
    sha256 = sha256_of_file(name)
    path = name.replace(folder / f"seen-{sha256[:16]}.sha256")
    return HashFile(path, part, len(content), sha256).entry()


def checked_file(entry: Any, folder: Path | None, key: str) -> tuple[Path, str, int, str]:
    """Path, part, count and SHA-256 of a file that a passport names, once it was checked.

    Args:
        entry: what stands in the passport.
        folder: where the passport lies.
        key: where it stands: ``seen_sha256`` or ``seen_copies``.

    Raises:
        UsvitError: the entry is damaged or asks for too much, or the file is missing, damaged or another one.
    """
    try:
        name, part, count, sha256 = (entry[key] for key in ("file", "part", "count", "sha256"))
        # A plain name: a passport from elsewhere must not make us read what lies outside its folder.
        sound = _NAMES[key].fullmatch(name) and part in PARTS and isinstance(count, int) and count > 0
    except (TypeError, KeyError, AttributeError):
        sound = None
    if not sound:
        raise UsvitError(f"A passport's '{key}' names files in an unknown way ({entry!r:.200}). Update usvit.")
    if key == "seen_copies" and count > MAX_DESCRIBED:
        raise UsvitError(f"A passport's '{key}' names {count} copy descriptions; at most {MAX_DESCRIBED} are read.")
    if folder is None:
        raise UsvitError(f"The passport names the file {name} beside it, but it was given without its folder.")
    if key == "seen_sha256" and count > MAX_HASHED:
        raise UsvitError(f"A passport's '{key}' names {count} hashes; at most {MAX_HASHED} are read.")
    path = folder / name
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, for ever
            raise UsvitError(f"{path} is no regular file. Copy it again, with the rest of its folder.")
        if status.st_size > count * (HASH_BYTES if key == "seen_sha256" else MAX_BYTES_EACH):
            raise UsvitError(f"{path} is larger than the model.json beside it says. Copy it again.")
        found = _sha256(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UsvitError(
            f"Cannot read {path} ({error.strerror}), which lists the images that the network of the model.json beside "
            "it has seen. Copy it again, with the rest of its folder."
        ) from error
    if found != sha256 or (key == "seen_sha256" and status.st_size != count * HASH_BYTES):
        raise UsvitError(
            f"{path} is damaged or another file: its SHA-256 is not the one in the model.json beside it. Copy it again."
        )
    return path, part, count, sha256


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Of a file as it is now: a passport is asked several times in one run."""
    return sha256_of_file(path)
