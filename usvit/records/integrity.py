"""Hashes on record: what a run or a scoring job wrote is what stands there now.

They find files that were exchanged, damaged or edited. They are no signature: whoever rewrites a file and its recorded
hash is not found by them, so figures are also recomputed where that is cheap (``usvit.metrics.recorded``).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import regular_file, sha256_of_file


def hashes_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name -> SHA-256, of those files that are there."""
    return {name: sha256_of_file(folder / name) for name in names if (folder / name).is_file()}


def refuse_changed(folder: Path, recorded: Mapping[str, str], where: str, names: Iterable[str]) -> None:
    """Refuse files that are not those on record.

    Args:
        folder: that the files lie in.
        recorded: name -> SHA-256; files that are not on record, or not there, are passed over.
        where: the name of the record's file, for the error.
        names: the files that are about to be read.

    Raises:
        UsvitError: a file is another one than was recorded, or no regular file.
    """
    for name in names:
        if name not in recorded or not (folder / name).exists():
            continue
        regular_file(folder / name).close()
        if sha256_of_file(folder / name) != recorded[name]:
            raise UsvitError(
                f"{folder / name} is not the file whose SHA-256 stands in {where}: it was changed, damaged or "
                "exchanged after it was written. Restore it from the original."
            )
