"""The files beside ``model.json`` that list the images a network has seen; they are checked before they are read.

A file of pixel hashes recognises exactly the same pixels. A file of near-duplicate descriptions
(``usvit.data.near_duplicates.compact``) also recognises an image after JPEG compression, cropping, resizing or
mirroring. What can and cannot be rebuilt from a description: ``docs/explanation/duplicates.md``.
"""

import functools
import hashlib
import mmap
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from usvit.data.near_duplicates import CompactDescriptions, SeenNearDuplicate, find_seen_near_duplicates
from usvit.errors import UsvitError
from usvit.files import file_state, read_bytes, regular_file, sha256_of_file, write_bytes
from usvit.records import SeenFileRecord
from usvit.records.seen_images import SeenSplit

PARTS: tuple[SeenSplit, ...] = ("train", "val", "upstream")
_HASH_BYTES = 32


@dataclass(frozen=True)
class _SeenFile:
    """A file about seen images; subclasses define its key in ``model.json`` and its size limits."""

    KEY: ClassVar[str]
    """Key in ``model.json``."""
    SUFFIX: ClassVar[str]
    WHAT: ClassVar[str]
    """Content per image, for error messages."""
    MAX_COUNT: ClassVar[int]
    MAX_BYTES_EACH: ClassVar[int]
    EXACT: ClassVar[bool]
    """True if each image takes exactly ``MAX_BYTES_EACH`` bytes."""

    path: Path
    part: SeenSplit
    """``train``, ``val`` or ``upstream``."""
    count: int
    """Number of images with different pixels."""
    sha256: str
    """SHA-256 of the file."""

    def __len__(self) -> int:
        return self.count

    def record(self, part: SeenSplit | None = None) -> SeenFileRecord:
        """Return the entry for ``model.json``; its split is ``part``, by default that of the file."""
        return SeenFileRecord(file=self.path.name, part=part or self.part, count=self.count, sha256=self.sha256)

    @classmethod
    def checked(cls, entry: SeenFileRecord, folder: Path | None) -> Self:
        """Check the file that an entry of the metadata names.

        Args:
            entry: entry of the metadata.
            folder: folder of the metadata.

        Raises:
            UsvitError: The entry exceeds a limit, or the file is missing, damaged or another one.
        """
        name, count = entry.file, entry.count
        # Only plain names: untrusted metadata must not lead to files outside its folder.
        if not re.fullmatch(rf"seen-[0-9a-f]{{16}}\.{cls.SUFFIX}", name):
            raise UsvitError(f"Metadata's '{cls.KEY}' names files in an unknown way ({name!r:.200}). Update usvit.")
        if count > cls.MAX_COUNT:
            raise UsvitError(f"Metadata's '{cls.KEY}' names {count} {cls.WHAT}; at most {cls.MAX_COUNT} are read.")
        if folder is None:
            raise UsvitError(f"The metadata names the file {name} beside it, but it was given without its folder.")
        path = folder / name
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # reading a pipe could block forever
                raise UsvitError(f"{path} is not a regular file. Copy it again, with the rest of its folder.")
            if status.st_size > count * cls.MAX_BYTES_EACH:
                raise UsvitError(f"{path} is larger than the model.json beside it says. Copy it again.")
            found = _sha256(path, file_state(status))
        except OSError as error:
            raise UsvitError(
                f"Cannot read {path} ({error.strerror}), which lists the images that the network of the model.json "
                "beside it has seen. Copy it again, with the rest of its folder."
            ) from error
        if found != entry.sha256 or (cls.EXACT and status.st_size != count * cls.MAX_BYTES_EACH):
            raise UsvitError(
                f"{path} is damaged or another file: its SHA-256 is not the one in the model.json beside it. Copy it "
                "again."
            )
        return cls(path, entry.part, count, entry.sha256)


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, state: tuple[int, ...]) -> str:
    """Hash a file; cached by ``file_state``, because a run checks the same metadata several times."""
    return sha256_of_file(path)


class HashFile(_SeenFile):
    """File of sorted pixel hashes, searched on disk with a memory map."""

    KEY, SUFFIX, WHAT = "seen_sha256", "sha256", "hashes"
    MAX_COUNT, MAX_BYTES_EACH, EXACT = 100_000_000, _HASH_BYTES, True

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._content[index * _HASH_BYTES : (index + 1) * _HASH_BYTES])

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


def write_hash_file(folder: Path, part: SeenSplit, hashes: Iterable[str]) -> SeenFileRecord:
    """Write a file of hashes, named after its content, each hash once, and return its entry for ``model.json``.

    Args:
        folder: folder of ``model.json``.
        part: ``train``, ``val`` or ``upstream``.
        hashes: hexadecimal pixel hashes.

    Raises:
        UsvitError: The disk is full or not writable.
    """
    raw = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=f"S{_HASH_BYTES}")
    content = np.unique(raw)  # bytes have the same order as hexadecimal digits
    name = folder / "seen.sha256"
    write_bytes(name, content.tobytes())
    sha256 = sha256_of_file(name)
    path = name.replace(folder / f"seen-{sha256[:16]}.{HashFile.SUFFIX}")
    return HashFile(path, part, len(content), sha256).record()


Described = Mapping[str, CompactDescriptions]
"""Pixel hash -> description of that image."""

MAX_DESCRIBED = 200_000
"""Maximum number of images of a split with descriptions of about 1 kB each. The images of a larger split are recognised
only by their pixel hashes, and the metadata says so."""
MAX_BYTES_EACH = 8192
"""Maximum size of a description in an untrusted file; those that usvit writes are much smaller."""


class CopyFile(_SeenFile):
    """File of near-duplicate descriptions."""

    KEY, SUFFIX, WHAT = "seen_copies", "copies", "near-duplicate descriptions"
    MAX_COUNT, MAX_BYTES_EACH, EXACT = MAX_DESCRIBED, MAX_BYTES_EACH, False

    def read(self) -> CompactDescriptions:
        """Read the descriptions.

        Raises:
            UsvitError: The file cannot be read, is damaged, or does not hold ``count`` images.
        """
        content = read_bytes(self.path, self.count * MAX_BYTES_EACH, hint="Copy it again.")
        try:
            found = CompactDescriptions.from_bytes(content)
        except UsvitError as error:
            raise UsvitError(f"{self.path}: {error} Copy it again.") from error
        if len(found) != self.count:
            raise UsvitError(
                f"{self.path} holds the descriptions of {len(found)} images, and the model.json beside it says "
                f"{self.count}. Copy both again."
            )
        return found


def write_copy_file(folder: Path, part: SeenSplit, descriptions: CompactDescriptions) -> SeenFileRecord:
    """Write a file of descriptions, named after its content, and return its entry for ``model.json``.

    Raises:
        UsvitError: The disk is full or not writable.
    """
    content = descriptions.to_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / f"seen-{sha256[:16]}.{CopyFile.SUFFIX}"
    write_bytes(path, content)
    return CopyFile(path, part, len(descriptions), sha256).record()


def joined(described: Described, who: str = "Near-duplicate descriptions") -> CompactDescriptions:
    """Concatenate the descriptions of several images in the order of the mapping.

    Raises:
        UsvitError: A description does not belong to its pixel hash.
    """
    found = CompactDescriptions.join(described.values())
    if len(found) != len(described):
        raise UsvitError(f"{who} do not belong to the pixel hashes beside them. Make the files again.")
    return found


def copies_of_seen(tested: Described, seen: CompactDescriptions) -> dict[str, SeenNearDuplicate]:
    """Find tested images that are near-duplicates of seen ones.

    Returns:
        Pixel hash of the tested image -> match.
    """
    if not tested or not len(seen):
        return {}
    names = list(tested)
    return {names[one.tested]: one for one in find_seen_near_duplicates(joined(tested), seen)}


def read_description(content: bytes, sha256: str, who: str) -> CompactDescriptions:
    """Read the description of one image from the bytes in a table.

    Args:
        content: bytes from a possibly untrusted file.
        sha256: pixel hash of the image, for error messages.
        who: the file, for error messages.

    Raises:
        UsvitError: The description is damaged, too long, or not of exactly one image.
    """
    if len(content) > MAX_BYTES_EACH:
        raise UsvitError(
            f"{who} holds a near-duplicate description of {len(content)} bytes, which is too long. Make it again."
        )
    try:
        found = CompactDescriptions.from_bytes(content)
    except UsvitError as error:
        raise UsvitError(f"{who}, image {sha256[:12]}...: {error} Make it again.") from error
    if len(found) != 1:
        raise UsvitError(f"{who} holds a near-duplicate description of {len(found)} images in one row. Make it again.")
    return found


def described_among(described: Described, hashes: Iterable[str]) -> tuple[dict[str, CompactDescriptions], int]:
    """Return the descriptions of some images, and the number of these images that have none."""
    wanted = dict.fromkeys(hashes)
    found = {sha256: described[sha256] for sha256 in wanted if sha256 in described}
    return found, len(wanted) - len(found)
