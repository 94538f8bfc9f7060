"""What lies in a zip archive: listed, never unpacked to the disk. ``items`` lists archives in a limited process.

Names in it are only names: one that is absolute or climbs with ``..`` leads nowhere, as nothing is written under it.
"""

import itertools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from usvit.score.find.walk import natural

MAGIC = b"PK\x03\x04"
"""How an archive with at least one member begins (PKWARE APPNOTE 4.3.7)."""
MAX_MEMBERS = 1_000_000
PORTION = 2000
"""Members in one list of ``member_lists``."""
MAX_RATIO = 200
"""Unpacked over packed, of a whole archive that unpacks to more than ``MAX_UNPACKED``; images stay below 20."""
MAX_UNPACKED = 1_000_000_000

MAX_DIRECTORY = 1 << 28
"""Bytes of the central directory, which ``zipfile`` holds in memory."""

_ENTRY = b"PK\x01\x02"
"""How each member begins in the central directory (APPNOTE 4.3.12)."""
_ZIP64_END = 76
"""Bytes of what stands between the directory and its end record in a large archive (APPNOTE 4.3.14, 4.3.15)."""
_DOCUMENTS = ("[Content_Types].xml", "META-INF/MANIFEST.MF")
"""Members that make a document or a program of an archive: Word, Excel; Java."""


class BadArchive(Exception):
    """It is damaged, or made to harm."""

    code = "archive"


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    label: str
    """Its name; where several have one name, all but the last (which is what every program unpacks) get ``//1``, ..."""
    name: str
    """What ``zipfile`` finds it by."""
    problem: str | None = None
    """``archive``: encrypted, damaged, an archive itself, or hidden by a later member of its name."""


def members(path: str) -> Iterator[Member]:
    """The files in an archive, in natural order of their names.

    A member that is a zip archive itself is found with the problem ``archive``: nested ones are not opened. An office
    document, a Java program and an archive that holds no file are no archives of files: nothing is found.

    Args:
        path: the archive.

    Raises:
        BadArchive: before the first member: its directory is damaged, or it has more members, or unpacks to more, than
            the bounds above; members overlap.
    """
    try:
        with open(path, "rb") as file:
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


def member_lists(path: str) -> Iterator[list[Member]]:
    """``members`` in portions, for the way from one process to another.

    Raises:
        BadArchive: as there.
    """
    found = members(path)
    while portion := list(itertools.islice(found, PORTION)):
        yield portion


def _refuse_too_many(file: BinaryIO) -> None:
    """Before ``zipfile`` makes an object of each member: it goes by the directory's size, whatever number is stated."""
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if end is None:
        raise BadArchive
    size, stop = end[zipfile._ECD_SIZE], end[zipfile._ECD_LOCATION]  # type: ignore[attr-defined]
    if size > MAX_DIRECTORY:
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


def _member(opened: zipfile.ZipFile, info: zipfile.ZipInfo, hidden: dict[str, int]) -> Member:
    """``hidden`` counts for each name the members that a later one hides: all of one name take linear time."""
    if opened.NameToInfo[info.filename] is not info:
        number = hidden.get(info.filename, 0) + 1
        while (label := f"{info.filename}//{number}") in opened.NameToInfo:
            number += 1
        hidden[info.filename] = number
        opened.NameToInfo[label] = info
        return Member(label, info.filename, "archive")
    try:
        with opened.open(info) as content:
            nested = content.read(len(MAGIC)) == MAGIC
    except Exception:  # of each decompressor its own errors, and RuntimeError for an encrypted member
        nested = True
    return Member(info.filename, info.filename, "archive" if nested else None)
