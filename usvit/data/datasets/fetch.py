"""Download a data set from its host into a new folder (``usvit data prepare --fetch``).

Only a card with ``fetch`` is downloaded, and only if the user asks for it. Everything happens in a hidden folder
beside the target; the data set appears there in one step, complete, or not at all. Archives are treated as untrusted:
no member leaves the folder, and the unpacked size is limited.
"""

import json
import logging
import os
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from usvit.data.datasets.cards import DataCard, FetchFile
from usvit.data.datasets.download import download, read_url
from usvit.data.datasets.locate import top_folder
from usvit.errors import UsvitError
from usvit.files import disk_errors, regular_file
from usvit.progress import Progress, task
from usvit.web import same_server

logger = logging.getLogger(__name__)

_ZENODO = "https://zenodo.org"
"""Address of Zenodo; ``USVIT_ZENODO`` sets a mirror."""
_MAX_RECORD_BYTES = 10_000_000
_OTHER_ARCHIVES = (".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")


def fetch_dataset(card: DataCard, root: Path | None, progress: Progress) -> Path:
    """Download and unpack one data set if it is missing.

    Args:
        card: card of the data set.
        root: folder of data sets; this one goes to ``root/<name of the card>``. None if the user gave no folder.
        progress: shown for each file.

    Returns:
        The folder of the data set.

    Raises:
        UsvitError: The card has no address (the error says how to get the data), the target exists, or see ``download``
            and ``unpack``. Downloaded files are kept for the next attempt.
    """
    if root and root.is_dir() and (present := top_folder(card, root)) is not None:
        logger.info(f"{card.name} already exists in {present}, so nothing is downloaded")
        return present
    if card.fetch is None:
        raise UsvitError(f"usvit cannot download {card.pretty_name}.\n{card.how_to_get}")
    if root is None:
        raise UsvitError(
            f"The target folder of {card.pretty_name} is not known: pass --data-root DIR or set USVIT_DATA. The data "
            f"set is downloaded to DIR/{card.name}."
        )
    place = root / card.name
    if place.exists():
        raise UsvitError(f"{place} exists but does not contain {card.pretty_name}. Move it, or name another folder.")
    work = root / f".{card.name}.fetch"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsvitError(f"Cannot write {work}: {error.strerror}. Choose another --data-root.") from error
    logger.info(f"{card.pretty_name}: licence {card.license}; from {card.host}; to {place}")
    names = []
    for name, file in _files(card):
        download(file, work / name, progress)
        names.append(name)
    unpacked = work / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)  # left by a killed run
    unpacked.mkdir()
    try:
        # Unpack archives first: a file that was moved is missing in the next attempt.
        for name in sorted(names, key=lambda name: not name.lower().endswith(".zip")):
            if name.lower().endswith(_OTHER_ARCHIVES):
                raise UsvitError(f"usvit unpacks zip files only. Unpack {work / name} by hand, and pass --data-root.")
            if name.lower().endswith(".zip"):
                unpack(work / name, unpacked, progress)
            else:
                (work / name).replace(unpacked / name)
        unpacked.replace(place)
    except BaseException:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise
    shutil.rmtree(work)
    return place


def _files(card: DataCard) -> list[tuple[str, FetchFile]]:
    """Return names and addresses of all files of a data set."""
    assert card.fetch is not None
    if card.fetch.zenodo is not None:
        return _zenodo_files(card.fetch.zenodo)
    return [(_plain_name(unquote(urlsplit(file.url).path.rsplit("/", 1)[-1])), file) for file in card.fetch.files]


def _zenodo_files(record: int) -> list[tuple[str, FetchFile]]:
    """List the files of a Zenodo record: ``{"files": [{"key", "size", "checksum": "md5:...", "links"}]}``."""
    url = f"{os.environ.get('USVIT_ZENODO', _ZENODO).rstrip('/')}/api/records/{record}"
    answer = read_url(url, _MAX_RECORD_BYTES)
    try:
        entries = json.loads(answer)["files"]
        files = [
            (
                _plain_name(entry["key"]),
                FetchFile(url=entry["links"]["self"], bytes=entry["size"], md5=entry["checksum"].removeprefix("md5:")),
            )
            for entry in entries
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # pydantic's is a ValueError
        raise UsvitError(f"The response of {url} is not a list of files in Zenodo's format.") from error
    for _, file in files:
        if not same_server(file.url, url):
            raise UsvitError(f"The record {url} names a file on another server, {file.url}, which is not downloaded.")
        if (file.bytes or 0) > MAX_BYTES:
            raise UsvitError(
                f"The record {url} names a file of {file.bytes:,} bytes; at most {MAX_BYTES:,} are loaded."
            )
    if not files:
        raise UsvitError(f"The record {url} has no files that can be downloaded.")
    return files


def _plain_name(name: str) -> str:
    if not name or name.startswith(".") or set(name) & set("/\\:\0"):
        raise UsvitError(f"A file to download has the name '{name}', which is not a plain file name.")
    return name


MAX_FILES = 200_000
"""The largest public breast-ultrasound set has 11,439 images."""
MAX_BYTES = 50 * 1000**3
"""Maximum unpacked size. The images of a public set take some hundred megabytes."""
MAX_RATIO = 100
"""Maximum ratio of unpacked to packed size. It is near 1 for images, which are compressed already, and near 10 for
tables."""
_CHUNK = 1 << 20
_NO_DATA = {"__MACOSX", ".DS_Store"}


def unpack(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a zip file. If its top level is a single folder, the content of that folder goes to ``folder``.

    Args:
        archive: the file.
        folder: target, created if missing. Existing files are not overwritten.
        progress: shown in files.

    Raises:
        UsvitError: The archive is damaged or encrypted, has a name twice or one that leaves the folder, holds a link or
            a device, or exceeds the limits above when unpacked. The caller removes what was unpacked so far.
    """
    try:
        with regular_file(archive) as file, zipfile.ZipFile(file) as opened:
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
        problem = f"it contains {len(infos):,} files, more than {MAX_FILES:,}"
    elif total > MAX_BYTES:
        problem = f"it unpacks to {total:,} bytes, more than {MAX_BYTES:,}"
    elif total > MAX_RATIO * packed:
        problem = f"it unpacks to {total / packed:.0f} times its size, more than {MAX_RATIO}"
    else:
        return
    raise UsvitError(f"The archive {archive.name} cannot be unpacked safely: {problem}.")


def _write(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, archive: Path, room: int) -> int:
    """Write one member and return its true size, which may differ from the size in the archive's header."""
    written = 0
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise UsvitError(f"The archive {archive.name} contains '{info.filename}' twice.")
        with opened.open(info) as source, open(target, "xb") as file:
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                if written > min(info.file_size, room):
                    raise UsvitError(f"The archive {archive.name} states a wrong size for '{info.filename}'.")
                file.write(chunk)
    return written
