"""``--fetch``: the data sets that may be downloaded, from their own host to a folder of their own.

Only a card with ``fetch`` is downloaded, and only when the user asks for it. Everything happens in
a hidden folder beside the place; the data set appears there in one step, whole, or not at all.
"""

import json
import os
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from usvit.data.cards import DataCard, FetchFile
from usvit.data.download import download, read_url
from usvit.data.readers import reader_for, subfolders
from usvit.data.unpack import unpack
from usvit.errors import UsvitError
from usvit.progress import Progress

ZENODO = "https://zenodo.org"
"""Where records are asked for; ``USVIT_ZENODO`` names a mirror."""
_MAX_RECORD_BYTES = 10_000_000
_OTHER_ARCHIVES = (".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")


def fetch_dataset(card: DataCard, root: Path | None, progress: Progress) -> Path:
    """Download and unpack one data set, unless it is there.

    Args:
        card: of the data set.
        root: the folder that holds data sets; this one goes to ``root/<name of the card>``. None: not given.
        progress: shown for each file.

    Returns:
        The data set's folder.

    Raises:
        UsvitError: the card has no address to download from (how to get the data is told), the place is taken,
            or as ``download`` and ``unpack``. What was downloaded is kept for the next attempt.
    """
    if root and (present := _present(card, root)) is not None:
        progress.say(f"{card.name} is in {present} already: nothing is downloaded")
        return present
    if card.fetch is None:
        raise UsvitError(f"usvit cannot download {card.pretty_name}.\n{card.how_to_get}")
    if root is None:
        raise UsvitError(
            f"Where should {card.pretty_name} be downloaded to? Pass --data-root DIR or set USVIT_DATA: it goes to "
            f"DIR/{card.name}."
        )
    place = root / card.name
    if place.exists():
        raise UsvitError(f"{place} exists, but does not hold {card.pretty_name}. Move it away, or name another folder.")
    work = root / f".{card.name}.fetch"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsvitError(f"Cannot write {work}: {error.strerror}. Choose another --data-root.") from error
    progress.say(f"{card.pretty_name}: licence {card.license}; from {card.host}; to {place}")
    names = []
    for name, file in _files(card, progress):
        download(file, work / name, progress)
        names.append(name)
    unpacked = work / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)  # what a killed run left
    unpacked.mkdir()
    try:
        # Archives first: a file that was moved away is not here for the next attempt.
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


def _present(card: DataCard, root: Path) -> Path | None:
    """Where under ``root`` the data set lies already, as ``open_dataset`` would find it."""
    if not root.is_dir():
        return None
    reader = reader_for(card)
    return next((folder for folder in (root, *subfolders(root)) if reader.looks_like(folder, card)), None)


def _files(card: DataCard, progress: Progress) -> list[tuple[str, FetchFile]]:
    """Names and addresses of all files of a data set."""
    assert card.fetch is not None
    if card.fetch.zenodo is not None:
        return _zenodo_files(card.fetch.zenodo, progress)
    return [(_plain_name(unquote(urlsplit(file.url).path.rsplit("/", 1)[-1])), file) for file in card.fetch.files]


def _zenodo_files(record: int, progress: Progress) -> list[tuple[str, FetchFile]]:
    """What a Zenodo record holds, by its own list: ``{"files": [{"key", "size", "checksum": "md5:...", "links"}]}``."""
    url = f"{os.environ.get('USVIT_ZENODO', ZENODO).rstrip('/')}/api/records/{record}"
    answer = read_url(url, _MAX_RECORD_BYTES, progress)
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
        raise UsvitError(f"{url} does not answer with a list of files as Zenodo does.") from error
    if not files:
        raise UsvitError(f"The record {url} holds no files that may be downloaded.")
    return files


def _plain_name(name: str) -> str:
    if not name or name.startswith(".") or set(name) & set("/\\:\0"):
        raise UsvitError(f"A file to download has the name '{name}', which is no plain file name.")
    return name
