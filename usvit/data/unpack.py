"""Unpacking an archive that a stranger made: nothing leaves the folder, nothing grows without bound."""

import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from usvit.errors import UsvitError
from usvit.files import disk_errors
from usvit.progress import Progress, task

MAX_FILES = 200_000
"""The largest public breast-ultrasound set has 11,439 images."""
MAX_BYTES = 50 * 1000**3
"""Unpacked. The images of a public set fill some hundred megabytes."""
MAX_RATIO = 100
"""Unpacked over packed. Images are compressed already: their archives stay near 1, tables near 10."""
_CHUNK = 1 << 20
_NO_DATA = {"__MACOSX", ".DS_Store"}


def unpack(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a zip file. A single folder at its top is left out: what is in it comes to stand in ``folder``.

    Args:
        archive: the file.
        folder: where to; made if missing. What it holds already is not overwritten.
        progress: shown in files.

    Raises:
        UsvitError: it is damaged or encrypted, a name in it leads out of the folder or stands twice, it holds a
            link or a device, or it is larger unpacked than the bounds above. What was unpacked so far is left
            for the caller to remove.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            _refuse_oversize(opened, archive)
            places = [(_place_of(info, archive), info) for info in opened.infolist() if not info.is_dir()]
            members = [(place, info) for place, info in places if not _NO_DATA & set(place.parts)]
            lift = len({place.parts[0] for place, _ in members}) == 1 and all(len(p.parts) > 1 for p, _ in members)
            total = 0
            with task(progress, f"unpacking {archive.name}", len(members), "files") as advance:
                for done, (place, info) in enumerate(members, 1):
                    target = folder.joinpath(*place.parts[1 if lift else 0 :])
                    total += _write(opened, info, target, archive, MAX_BYTES - total)
                    advance(done)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, RuntimeError) as error:
        raise UsvitError(f"The archive {archive.name} is damaged or of an unknown kind ({error}).") from error


def _place_of(info: zipfile.ZipInfo, archive: Path) -> PurePosixPath:
    name = info.filename.replace("\\", "/")
    place = PurePosixPath(name)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if place.is_absolute() or ".." in place.parts or ":" in name or not place.parts:
        problem = f"the name '{info.filename}' leads out of the folder"
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        problem = f"'{info.filename}' is a link or a device, not a file"
    elif info.flag_bits & 1:
        problem = f"'{info.filename}' is encrypted"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = f"'{info.filename}' is compressed in a way that is not supported"
    else:
        return place
    raise UsvitError(f"The archive {archive.name} cannot be unpacked safely: {problem}.")


def _refuse_oversize(opened: zipfile.ZipFile, archive: Path) -> None:
    infos = opened.infolist()
    total, packed = sum(info.file_size for info in infos), archive.stat().st_size
    if len(infos) > MAX_FILES:
        problem = f"it holds {len(infos):,} files, more than {MAX_FILES:,}"
    elif total > MAX_BYTES:
        problem = f"it unpacks to {total:,} bytes, more than {MAX_BYTES:,}"
    elif total > MAX_RATIO * packed:
        problem = f"it unpacks to {total / packed:.0f} times its size, more than {MAX_RATIO}"
    else:
        return
    raise UsvitError(f"The archive {archive.name} cannot be unpacked safely: {problem}.")


def _write(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, archive: Path, room: int) -> int:
    """One member; returns its true size, whatever the archive claimed."""
    written = 0
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise UsvitError(f"The archive {archive.name} holds '{info.filename}' twice.")
        with opened.open(info) as source, open(target, "xb") as file:
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                if written > min(info.file_size, room):
                    raise UsvitError(f"The archive {archive.name} lies about the size of '{info.filename}'.")
                file.write(chunk)
    return written
