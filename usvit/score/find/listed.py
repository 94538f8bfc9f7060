"""Inputs that are lists of files: a table of paths, and the DICOMDIR of a CD."""

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.limited import LimitedCalls, LimitReached
from usvit.score.find.walk import is_folder, natural

MODULES = ("usvit.score.reading.read",)
"""What the fork server holds ready, as the readers of images, which come next, want it."""
MAX_INDEX_BYTES = 50_000_000
"""Of a DICOMDIR: one of a whole DVD has a few megabytes."""
TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet")


@dataclass(frozen=True)
class Listed:
    """A file that a list names; it may not be there."""

    name: str
    """Relative to the list's folder, with forward slashes; ``name//3`` where the list asks for several frames of it."""
    path: str
    frame: int | None = None
    patient: str | None = None
    study: str | None = None
    problem: str | None = None
    """A code of ``records.FAILURES``."""


def read_table(path: Path, typed: str) -> list[Listed]:
    """The rows of a table with a column ``path`` and perhaps ``frame`` (from 0), ``patient_id``, ``study_id``.

    Paths are relative to the table's folder; backslashes may part them. Rows stay in their order.

    Args:
        path: the table.
        typed: what the user called it, for errors, which quote no cell: a table without a header would betray a name.

    Raises:
        UsvitError: it cannot be read, has no column ``path``, or a row has no path, names a folder, has a frame that is
            no whole number, or asks for what another row asks for already.
    """
    from usvit.data.readers.sheets import read_private_sheet

    rows = read_private_sheet(path, f"The table {typed}").rows
    if "path" not in rows:
        raise UsvitError(
            f"The table {typed} has no column 'path'. Its first row must name the columns: path, and where wanted "
            "frame, patient_id, study_id."
        )
    folder = path.parent.absolute()
    listed, taken = [], _Taken(typed)
    for number, row in zip(rows.index, rows.to_dict("records"), strict=True):
        where = f"Row {number} of {typed}"
        if not row["path"]:
            raise UsvitError(f"{where} has no path.")
        place = _place(folder, row["path"])
        if is_folder(place):
            raise UsvitError(f"{where} names a folder: a table lists files. Pass the folder itself as --input.")
        name = os.path.relpath(place, folder).replace(os.sep, "/")
        frame = _frame(row.get("frame", ""), where)
        taken.add(name, frame, number)
        listed.append(Listed(name, str(place), frame, row.get("patient_id") or None, row.get("study_id") or None))
    return [_with_frame(one) if taken.several(one.name) else one for one in listed]


class _Taken:
    """What the rows so far ask for."""

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
                f"Rows {clash} and {row} of {self._typed} ask for the same frame of the same file (an empty frame "
                "means all that --frames chooses). Remove one."
            )
        frames[frame] = row

    def several(self, name: str) -> bool:
        return len(self._rows[name]) > 1


def _with_frame(one: Listed) -> Listed:
    return Listed(f"{one.name}//{one.frame}", one.path, one.frame, one.patient, one.study)


def _place(folder: Path, text: str) -> Path:
    place = Path(os.path.normpath(folder / text))
    if "\\" in text and not os.path.lexists(place):
        return Path(os.path.normpath(folder / text.replace("\\", "/")))
    return place


def _frame(text: str, where: str) -> int | None:
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.0*)?", text):
        raise UsvitError(f"{where}: the frame is no whole number. Frames count from 0; an empty cell means all.")
    return int(text.split(".")[0])


def is_dicomdir(path: Path) -> bool:
    """Whether a file is an index of other files, by its content."""
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import MediaStorageDirectoryStorage

    with open(path, "rb") as file:
        if file.read(132)[128:] != b"DICM":
            return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = str(read_file_meta_info(str(path)).get("MediaStorageSOPClassUID", ""))
            return kind == MediaStorageDirectoryStorage
    except Exception:  # whatever is wrong with it, a worker will say so
        return False


def read_dicomdir(path: Path, typed: str) -> list[tuple[str, ...]]:
    """The ReferencedFileIDs of an index in its order, each once, as the names on the way to the file.

    Args:
        path: the DICOMDIR.
        typed: what the user called it, for errors.

    Raises:
        UsvitError: it is damaged.

    Source: DICOM PS3.3 F.3.2.2 (Directory Record), PS3.10 8.2 (File IDs).
    """
    instead = "Pass its folder as --input instead."
    size = path.stat().st_size
    if size > MAX_INDEX_BYTES:
        raise UsvitError(f"The DICOMDIR {typed} has {size:,} bytes, and {MAX_INDEX_BYTES:,} are read. {instead}")
    with LimitedCalls(*MODULES) as calls:
        try:
            references: list[tuple[str, ...]] | None = calls.call(_references, path)
        except LimitReached as error:
            raise UsvitError(f"The DICOMDIR {typed} is not read: {error}. {instead}") from error
    if references is None:
        raise UsvitError(f"The DICOMDIR {typed} is damaged. {instead}")
    return references


def _references(path: Path) -> list[tuple[str, ...]] | None:
    """In a limited process: ``read_dicomdir``; None for a file that is damaged."""
    import pydicom
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # An index is never deflated (PS3.10 8.6), which would let it unpack to any size.
            if read_file_meta_info(str(path)).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
                return None
            records = pydicom.dcmread(path).get("DirectoryRecordSequence") or []
            ids = [record.get("ReferencedFileID") for record in records]
            return list(dict.fromkeys(_parts(one) for one in ids if one))
    except MemoryError:
        raise
    except Exception:  # pydicom raises what it meets
        return None


def _parts(file_id: Any) -> tuple[str, ...]:
    parts = [file_id] if isinstance(file_id, str) else list(file_id)
    # Some writers put the whole path into one value.
    return tuple(name for part in parts for name in re.split(r"[/\\]", str(part)))


def find_referenced(folder: Path, references: list[tuple[str, ...]]) -> Iterator[Listed]:
    """Where the files of a DICOMDIR lie; a name that is not there is looked for in any case, with ``;1`` or ``.``.

    An index is a stranger's: a reference that climbs out of its folder is a file that is not there.

    Args:
        folder: the DICOMDIR's.
        references: of ``read_dicomdir``.
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
    """Names in the folders that were looked into last."""

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
    """As on a CD: no case, no version, no empty suffix (ISO 9660, 7.5)."""
    return re.sub(";[0-9]+$", "", name).rstrip(".").casefold()
