"""Copy descriptions of what a network has seen: files beside its ``model.json``, by which copies are recognised.

A pixel hash recognises the very same pixels only. A copy description (``usvit.data.copies.compact``) also recognises
the image after JPEG compression, cropping, resizing or mirroring. What can be rebuilt from it, and what cannot:
``docs/explanation/duplicates.md``.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from usvit.data.copies.compact import CompactDescriptions, SeenCopy, find_seen_copies
from usvit.data.seen_files import SeenFile
from usvit.errors import UsvitError
from usvit.files import read_bytes, write_bytes

Described = Mapping[str, CompactDescriptions]
"""Pixel hash -> the description of that one image."""

MAX_DESCRIBED = 200_000
"""Images of one part that are described; a description takes about 1 kB. The images of a larger part are recognised by
their pixel hashes alone, and the metadata say so."""
MAX_BYTES_EACH = 8192
"""Bytes of one description that are read from a file of somebody else; those that usvit writes are much smaller."""


class CopyFile(SeenFile):
    """Copy descriptions."""

    KEY, SUFFIX, WHAT = "seen_copies", "copies", "copy descriptions"
    MAX_COUNT, MAX_BYTES_EACH, EXACT = MAX_DESCRIBED, MAX_BYTES_EACH, False

    def read(self) -> CompactDescriptions:
        """The descriptions.

        Raises:
            UsvitError: the file cannot be read, is damaged, or holds more or fewer images than it is said to hold.
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


def write_copy_file(folder: Path, part: str, descriptions: CompactDescriptions) -> dict[str, Any]:
    """Write a file of descriptions, named after its content, and return its entry for ``model.json``.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    content = descriptions.to_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / f"seen-{sha256[:16]}.{CopyFile.SUFFIX}"
    write_bytes(path, content)
    return CopyFile(path, part, len(descriptions), sha256).entry()


def joined(described: Described, who: str = "Copy descriptions") -> CompactDescriptions:
    """The descriptions of several images as one, in the order of the mapping.

    Raises:
        UsvitError: a description is of another image than the hash says that it stands under.
    """
    found = CompactDescriptions.join(described.values())
    if len(found) != len(described):
        raise UsvitError(f"{who} do not belong to the pixel hashes beside them. Make the files again.")
    return found


def copies_of_seen(tested: Described, seen: CompactDescriptions) -> dict[str, SeenCopy]:
    """Which of the tested images are copies of seen ones.

    Returns:
        Pixel hash of the tested image -> the copy that was found.
    """
    if not tested or not len(seen):
        return {}
    names = list(tested)
    return {names[one.tested]: one for one in find_seen_copies(joined(tested), seen)}


def read_description(content: bytes, sha256: str, who: str) -> CompactDescriptions:
    """The description of one image from its bytes, as it stands in a table.

    Args:
        content: from a file that may be somebody else's.
        sha256: pixel hash of its image, for the error.
        who: the file, for the error.

    Raises:
        UsvitError: it is damaged, too long, or not of exactly one image.
    """
    if len(content) > MAX_BYTES_EACH:
        raise UsvitError(f"{who} holds a copy description of {len(content)} bytes, which is too long. Make it again.")
    try:
        found = CompactDescriptions.from_bytes(content)
    except UsvitError as error:
        raise UsvitError(f"{who}, image {sha256[:12]}...: {error} Make it again.") from error
    if len(found) != 1:
        raise UsvitError(f"{who} holds a copy description of {len(found)} images in one row. Make it again.")
    return found


def described_among(described: Described, hashes: Iterable[str]) -> tuple[dict[str, CompactDescriptions], int]:
    """The descriptions of some images, and how many of these images have none."""
    wanted = dict.fromkeys(hashes)
    found = {sha256: described[sha256] for sha256 in wanted if sha256 in described}
    return found, len(wanted) - len(found)
