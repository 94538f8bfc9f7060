"""Listing of zip archives, without unpacking them to the disk; ``inputs`` does this in a limited process.

Names in an archive that are absolute or contain ``..`` are harmless, because nothing is written under them.
"""

import itertools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from usvit.files import open_regular
from usvit.scoring.discovery.folders import natural

MAGIC = b"PK\x03\x04"
"""First bytes of an archive with at least one member (PKWARE APPNOTE 4.3.7)."""
MAX_MEMBERS = 1_000_000
PORTION = 2000
"""Number of members in one list of ``member_lists``."""
MAX_RATIO = 200
"""Maximum ratio of unpacked to packed bytes of an archive that unpacks to more than ``MAX_UNPACKED``; images stay below
20."""
MAX_UNPACKED = 1_000_000_000

_MAX_DIRECTORY = 1 << 28
"""Maximum size in bytes of the central directory, which ``zipfile`` holds in memory."""

_ENTRY = b"PK\x01\x02"
"""First bytes of each member in the central directory (APPNOTE 4.3.12)."""
_ZIP64_END = 76
"""Bytes between the central directory and its end record in a large archive (APPNOTE 4.3.14, 4.3.15)."""
_DOCUMENTS = ("[Content_Types].xml", "META-INF/MANIFEST.MF")
"""Members that identify a document (Word, Excel) or a Java program."""


class BadArchive(Exception):
    """The archive is damaged, or a decompression bomb."""

    code = "archive"


@dataclass(frozen=True)
class ArchiveMember:
    """A file in an archive."""

    label: str
    """Its name. If several members have the same name, all but the last, which programs unpack, get ``//1`` etc."""
    name: str
    """Its name for ``zipfile``."""
    problem: str | None = None
    """``archive`` if it is encrypted, damaged, itself an archive, or hidden by a later member with the same name."""


def members(path: str) -> Iterator[ArchiveMember]:
    """Yield the files in an archive, in natural order of their names.

    A member that is itself a zip archive has the problem ``archive``, because nested archives are not opened. Office
    documents, Java programs and archives without files yield nothing.

    Args:
        path: the archive.

    Raises:
        BadArchive: before the first member, if the central directory is damaged, the archive exceeds the limits above,
            or members overlap.
    """
    try:
        with open_regular(Path(path)) as file:
            _refuse_too_many(file)
            with zipfile.ZipFile(file) as opened:
                infos = [info for info in opened.infolist() if not info.is_dir()]
                _refuse_bomb(infos, file.seek(0, 2))
                if not _is_document(opened):
                    infos.sort(key=lambda info: ([*map(natural, info.filename.split("/"))], info.header_offset))
                    hidden: dict[str, int] = {}
                    for info in infos:
                        yield _member(opened, info, hidden)
    except (OSError, ValueError, RuntimeError, RecursionError, MemoryError, zipfile.BadZipFile) as error:
        raise BadArchive from error


def member_lists(path: str) -> Iterator[list[ArchiveMember]]:
    """Yield ``members`` in lists, to send them from one process to another.

    Raises:
        BadArchive: see ``members``.
    """
    found = members(path)
    while portion := list(itertools.islice(found, PORTION)):
        yield portion


def _refuse_too_many(file: BinaryIO) -> None:
    """Limit the number of members before ``zipfile`` creates an object for each; the stated number is not trusted."""
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if end is None:
        raise BadArchive
    size, stop = end[zipfile._ECD_SIZE], end[zipfile._ECD_LOCATION]  # type: ignore[attr-defined]
    if size > _MAX_DIRECTORY:
        raise BadArchive
    file.seek(max(0, stop - size - _ZIP64_END))
    if file.read(size + _ZIP64_END).count(_ENTRY) > MAX_MEMBERS:
        raise BadArchive


def _refuse_bomb(infos: list[zipfile.ZipInfo], size: int) -> None:
    packed, unpacked = sum(info.compress_size for info in infos), sum(info.file_size for info in infos)
    overlapping = packed > size  # the same packed bytes under many names (Fifield, "A better zip bomb", 2019)
    if len(infos) > MAX_MEMBERS or overlapping or (unpacked > MAX_UNPACKED and unpacked > MAX_RATIO * size):
        raise BadArchive


def _is_document(opened: zipfile.ZipFile) -> bool:
    first = opened.infolist()[:1]
    # OpenDocument and EPUB begin with their media type.
    return any(name in opened.NameToInfo for name in _DOCUMENTS) or [one.filename for one in first] == ["mimetype"]


def _member(opened: zipfile.ZipFile, info: zipfile.ZipInfo, hidden: dict[str, int]) -> ArchiveMember:
    """Return a member. ``hidden`` counts the hidden members of each name, so that many equal names take linear time."""
    if opened.NameToInfo[info.filename] is not info:
        number = hidden.get(info.filename, 0) + 1
        while (label := f"{info.filename}//{number}") in opened.NameToInfo:
            number += 1
        hidden[info.filename] = number
        opened.NameToInfo[label] = info
        return ArchiveMember(label, info.filename, "archive")
    try:
        with opened.open(info) as content:
            nested = content.read(len(MAGIC)) == MAGIC
    except Exception:  # each decompressor has its own errors; RuntimeError for an encrypted member
        nested = True
    return ArchiveMember(info.filename, info.filename, "archive" if nested else None)
