"""Cache of what examining the images of a data set has found: hashes and descriptions, but no pixels and no names.

An image is found again by its path and the state of its file (``file_state``: size, times, inode), and those of its
masks. A file that is replaced without changing any of these is noticed before a training: ``PixelStore`` compares the
decoded pixels with the hash of the manifest, and ``pixel_cache`` compares the bytes of all files.
"""

import functools
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from usvit.data.io import Fingerprint, mask_file
from usvit.data.near_duplicates import CompactDescriptions, Description, NearDuplicate
from usvit.errors import UsvitError
from usvit.files import file_state
from usvit.resources import cache_dir

logger = logging.getLogger(__name__)

Found = tuple[Fingerprint, Description]
T = TypeVar("T")

VERSION = 1
"""To be increased whenever images are decoded, hashed or described in another way."""
_DECODERS = (
    *("pillow", "opencv-python-headless", "pydicom", "numpy"),
    *("python-gdcm", "pyjpegls", "pylibjpeg", "pylibjpeg-openjpeg"),
)
"""Packages whose versions belong to the key, because another version may decode or describe an image differently."""
RECENT_SECONDS = 2.0
"""A file that was modified less than this time ago is not kept: it could change again within one tick of its clock."""
MAX_ROWS = 2_000_000
"""Most images that are kept (about 2.5 KB each); beyond, the oldest are removed."""
_SECONDS = 10.0
"""Longest wait for another process that writes to the cache."""
_TABLES = """
CREATE TABLE IF NOT EXISTS images (
    key BLOB PRIMARY KEY, sha256 TEXT, phash TEXT, height INTEGER, width INTEGER, description BLOB, kept INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pairs (key BLOB PRIMARY KEY, pairs TEXT, kept INTEGER) WITHOUT ROWID;
"""


class ExaminationCache:
    """The cache file in the user's cache folder. If it cannot be read or written, nothing is found and nothing kept.

    Args:
        path: The file. Default: ``examined.sqlite`` in the cache folder.
    """

    def __init__(self, path: Path | None = None):
        self.path = path or cache_dir() / "examined.sqlite"

    def load(self, keys: Sequence[bytes | None]) -> list[Found | None]:
        """Return what is known of each image; None for an image that must be examined.

        Args:
            keys: ``image_key`` of each image.
        """

        def action(connection: sqlite3.Connection) -> list[Found | None]:
            query = "SELECT sha256, phash, height, width, description FROM images WHERE key = ?"
            rows = [key and connection.execute(query, (key,)).fetchone() for key in keys]
            return [_from_row(*row) if row else None for row in rows]

        return self._run(action) or [None] * len(keys)

    def save(self, found: Sequence[tuple[bytes | None, Found]]) -> None:
        """Keep what was found of images; an image without a key is left out."""
        rows = [_to_row(key, one) for key, one in found if key is not None]

        def action(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            (count,) = connection.execute("SELECT COUNT(*) FROM images").fetchone()
            if count > MAX_ROWS:
                oldest = "SELECT key FROM images ORDER BY kept LIMIT ?"
                connection.execute(f"DELETE FROM images WHERE key IN ({oldest})", (count - MAX_ROWS,))

        if rows:
            self._run(action)

    def load_pairs(self, descriptions: Sequence[Description]) -> list[NearDuplicate] | None:
        """Return the near-duplicates among these images; None if they have not been searched before."""

        def action(connection: sqlite3.Connection) -> list[NearDuplicate] | None:
            query = "SELECT pairs FROM pairs WHERE key = ?"
            row = connection.execute(query, (_set_key(descriptions),)).fetchone()
            return None if row is None else [NearDuplicate(*pair) for pair in json.loads(row[0])]

        return self._run(action)

    def save_pairs(self, descriptions: Sequence[Description], pairs: Sequence[NearDuplicate]) -> None:
        """Keep the near-duplicates among these images."""
        content = json.dumps([[pair.first, pair.second, pair.similarity, pair.kind] for pair in pairs])
        row = (_set_key(descriptions), content, int(time.time()))
        self._run(lambda connection: connection.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?)", row))

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run an action in a transaction on the file, which only its owner may read; None if that is impossible."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
            with closing(sqlite3.connect(self.path, timeout=_SECONDS)) as connection:
                connection.executescript(_TABLES)
                with connection:
                    return action(connection)
        except (sqlite3.Error, OSError, ValueError, TypeError, UsvitError) as error:
            logger.debug(f"The cache {self.path} is not used: {type(error).__name__}")
            return None


def image_key(image: Path, frame: int | None, masks: Sequence[Path] = ()) -> bytes | None:
    """Return the key of an image with its masks, which changes if one of the files is replaced.

    Returns:
        None if a file cannot be found, or has just been modified.
    """
    parts: list[object] = [*decoder_versions(), VERSION, frame]
    for path in (image, *masks):
        try:
            found = mask_file(path).stat()
        except OSError:
            return None
        if time.time() - max(found.st_mtime, found.st_ctime) < RECENT_SECONDS:
            return None
        parts += [str(path.absolute()), *file_state(found)]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).digest()


def _set_key(descriptions: Sequence[Description]) -> bytes:
    """Return the key of images whose order counts, because pairs name them by their numbers."""
    digest = hashlib.sha256(json.dumps([*decoder_versions(), VERSION]).encode())
    digest.update(CompactDescriptions.of(descriptions).to_bytes())
    return digest.digest()


@functools.cache
def decoder_versions() -> tuple[str, ...]:
    """Return the installed version of each of ``_DECODERS``; "" if it is not installed."""
    found = []
    for name in _DECODERS:
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("")
    return tuple(found)


def _to_row(key: bytes, found: Found) -> tuple[object, ...]:
    print_, description = found
    content = CompactDescriptions.of([description]).to_bytes()
    return (key, print_.sha256, print_.phash, *print_.shape, content, int(time.time()))


def _from_row(sha256: str, phash: str, height: int, width: int, content: bytes) -> Found:
    (description,) = CompactDescriptions.from_bytes(content).images
    if description.sha256 != sha256:
        raise ValueError("a row of the cache is damaged")
    return Fingerprint(sha256, phash, (height, width)), description
