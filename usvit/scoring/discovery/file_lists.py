"""Inputs that are lists of files: a table of paths, and the DICOMDIR of a CD."""

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.files import open_regular
from usvit.limited import LimitedCalls, LimitReached
from usvit.scoring.discovery.folders import is_folder, natural

MODULES = ("usvit.scoring.reading.item_reader",)
"""Modules that the fork server preloads; the image readers, which start next, need them too."""
_MAX_PATH = 32_768
"""Maximum length of a path: Windows allows 32,767 characters, Linux 4,096."""
_MAX_INDEX_BYTES = 50_000_000
"""Maximum size of a DICOMDIR; that of a whole DVD has a few megabytes."""
TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet")


@dataclass(frozen=True)
class Listed:
    """A file named in a list; it may not exist."""

    name: str
    """Path relative to the folder of the list, with forward slashes; ``name//3`` if the list names several frames."""
    path: str
    frame: int | None = None
    patient: str | None = None
    study: str | None = None
    side: str | None = None
    problem: str | None = None
    """A code of ``items.FAILURES``."""


def read_table(path: Path, typed: str) -> list[Listed]:
    """Read a table with a column ``path`` and optionally ``frame`` (from 0), ``patient_id``, ``study_id``, ``side``.

    Paths are relative to the folder of the table and may contain backslashes. The order of the rows is kept.

    Args:
        path: the table.
        typed: the path as the user passed it, for error messages. These quote no cell, because the first row of a table
            without a header may name a person.

    Raises:
        UsvitError: the table cannot be read or has no column ``path``; or a row has no path, names a folder, has a
            frame that is not an integer or a side that is none, or names the same frame as another row.
    """
    from usvit.data.datasets import SIDE_WORDS, read_private_sheet, side_of

    rows = read_private_sheet(path, f"The table {typed}").rows
    if "path" not in rows:
        raise UsvitError(
            f"The table {typed} has no column 'path'. Its first row must name the columns: path, and optionally frame, "
            "patient_id, study_id, side."
        )
    folder = path.parent.absolute()
    listed, taken = [], _Taken(typed)
    for number, row in zip(rows.index, rows.to_dict("records"), strict=True):
        where = f"Row {number} of {typed}"
        if not row["path"]:
            raise UsvitError(f"{where} has no path.")
        if len(row["path"]) > _MAX_PATH:
            raise UsvitError(
                f"{where} has a path of {len(row['path']):,} characters, which is longer than any system allows."
            )
        place = _place(folder, row["path"])
        if is_folder(place):
            raise UsvitError(f"{where} names a folder, but a table must list files. Pass the folder itself as --input.")
        name = os.path.relpath(place, folder).replace(os.sep, "/")
        frame = _frame(row.get("frame", ""), where)
        taken.add(name, frame, number)
        patient, study, side = (row.get(key) or None for key in ("patient_id", "study_id", "side"))
        if side is not None and side_of(side) is None:
            raise UsvitError(
                f"{where}: the side is not known. Known are {SIDE_WORDS}. Leave the cell empty if it is unknown."
            )
        listed.append(Listed(name, str(place), frame, patient, study, side and side_of(side)))
    return [_with_frame(one) if taken.several(one.name) else one for one in listed]


class _Taken:
    """The files and frames named by the rows read so far."""

    def __init__(self, typed: str):
        self._typed = typed
        self._rows: dict[str, dict[int | None, int]] = {}

    def add(self, name: str, frame: int | None, row: int) -> None:
        frames = self._rows.setdefault(name, {})
        clash = frames.get(frame, frames.get(None))
        if clash is None and frame is None and frames:
            clash = next(iter(frames.values()))
        if clash is not None:
            raise UsvitError(
                f"Rows {clash} and {row} of {self._typed} name the same frame of the same file (an empty frame means "
                "all frames that --frames selects). Remove one."
            )
        frames[frame] = row

    def several(self, name: str) -> bool:
        return len(self._rows[name]) > 1


def _with_frame(one: Listed) -> Listed:
    return replace(one, name=f"{one.name}//{one.frame}")


def _place(folder: Path, text: str) -> Path:
    place = Path(os.path.normpath(folder / text))
    if "\\" in text and not os.path.lexists(place):
        return Path(os.path.normpath(folder / text.replace("\\", "/")))
    return place


def _frame(text: str, where: str) -> int | None:
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.0*)?", text):
        raise UsvitError(f"{where}: the frame is not an integer. Frames count from 0; an empty cell means all frames.")
    return int(text.split(".")[0])


def is_dicomdir(path: Path) -> bool:
    """Return whether a file is a DICOMDIR, judged by its content."""
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import MediaStorageDirectoryStorage

    with open_regular(path) as file:
        if file.read(132)[128:] != b"DICM":
            return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = str(read_file_meta_info(str(path)).get("MediaStorageSOPClassUID", ""))
            return kind == MediaStorageDirectoryStorage
    except Exception:  # a worker reports what is wrong with it
        return False


def read_dicomdir(path: Path, typed: str) -> list[tuple[str, ...]]:
    """Return the ReferencedFileIDs of a DICOMDIR in order, each once, as the parts of a path.

    Args:
        path: the DICOMDIR.
        typed: the path as the user passed it, for error messages.

    Raises:
        UsvitError: it is damaged.

    Source: DICOM PS3.3 F.3.2.2 (Directory Record), PS3.10 8.2 (File IDs).
    """
    instead = "Pass its folder as --input instead."
    size = path.stat().st_size
    if size > _MAX_INDEX_BYTES:
        raise UsvitError(f"The DICOMDIR {typed} has {size:,} bytes; the maximum is {_MAX_INDEX_BYTES:,}. {instead}")
    with LimitedCalls(*MODULES) as calls:
        try:
            references: list[tuple[str, ...]] | None = calls.call(_references, path)
        except LimitReached as error:
            raise UsvitError(f"The DICOMDIR {typed} cannot be read: {error}. {instead}") from error
    if references is None:
        raise UsvitError(f"The DICOMDIR {typed} is damaged. {instead}")
    return references


def _references(path: Path) -> list[tuple[str, ...]] | None:
    """Read a DICOMDIR in a limited process; None if it is damaged."""
    import pydicom
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # A DICOMDIR must not be deflated (PS3.10 8.6); a deflated one could unpack to any size.
            if read_file_meta_info(str(path)).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
                return None
            with open_regular(path, _MAX_INDEX_BYTES) as file:
                records = pydicom.dcmread(file).get("DirectoryRecordSequence") or []
            ids = [record.get("ReferencedFileID") for record in records]
            return list(dict.fromkeys(_parts(one) for one in ids if one))
    except MemoryError:
        raise
    except Exception:  # pydicom raises many types for damaged files
        return None


def _parts(file_id: Any) -> tuple[str, ...]:
    parts = [file_id] if isinstance(file_id, str) else list(file_id)
    # Some writers put the whole path into one value.
    return tuple(name for part in parts for name in re.split(r"[/\\]", str(part)))


def find_referenced(folder: Path, references: list[tuple[str, ...]]) -> Iterator[Listed]:
    """Find the files of a DICOMDIR. A missing name is also searched in any case, with ``;1``, or with a final ``.``.

    A DICOMDIR is not trusted: a reference that leaves its folder counts as a missing file.

    Args:
        folder: folder of the DICOMDIR.
        references: references returned by ``read_dicomdir``.
    """
    names, given = _Names(), set()
    for parts in references:
        astray = bool(set(parts) & {"", ".", ".."}) or any("\0" in part or Path(part).is_absolute() for part in parts)
        found: list[str] = []
        for part in parts:
            found.append(part if astray else names.find(folder.joinpath(*found), part))
        name = "/".join(found)
        if name not in given:
            yield Listed(name, str(folder.joinpath(*found)), problem="not_found" if astray else None)
        given.add(name)


class _Names:
    """Cache of the names in the folders that were searched last."""

    def __init__(self) -> None:
        self._folders: dict[Path, dict[str, str]] = {}

    def find(self, folder: Path, name: str) -> str:
        if os.path.lexists(folder / name):
            return name
        if folder not in self._folders:
            if len(self._folders) >= 16:
                self._folders.pop(next(iter(self._folders)))
            try:
                here = sorted((one.name for one in folder.iterdir()), key=natural, reverse=True)
            except (OSError, ValueError):
                here = []
            self._folders[folder] = {_plain(one): one for one in here}
        return self._folders[folder].get(_plain(name), name)


def _plain(name: str) -> str:
    """Normalise a name as on a CD: without case, version and empty suffix (ISO 9660, 7.5)."""
    return re.sub(";[0-9]+$", "", name).rstrip(".").casefold()
