"""Files of WebDataset shards: local, or downloaded whole into a cache of limited size when they are first needed."""

import errno
import glob
import hashlib
import http.client
import json
import logging
import os
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

import braceexpand
import filelock
import fsspec
import numpy as np

from usvit.errors import UsvitError
from usvit.files import atomic, file_state, open_regular, regular_file, write_atomic
from usvit.plain_data import Json
from usvit.resources import cache_dir
from usvit.upstream.sources.shard_index import ShardIndex, read_index
from usvit.web import WebLimits, open_url

logger = logging.getLogger(__name__)

CACHE_GB = 50.0
"""Default limit of the cache of fetched shards in GB; ``USVIT_SHARD_CACHE_GB`` sets another one."""
MOST_BYTES = 100 * 1000**3
"""Largest shard that is fetched."""
TIMEOUT = 60.0
"""Seconds without data after which a connection to a server of http counts as broken."""
_CHUNK = 1 << 20
_INDEX_BYTES = 10**9
ATTEMPTS = 3
"""Attempts to fetch a shard before an error is raised."""


@dataclass(frozen=True)
class Shard:
    """One shard."""

    address: str
    remote: bool
    key: str
    """Hash of the address and the state (length, date or ETag) of the file; a changed file has another key."""

    @property
    def shown(self) -> str:
        """Address without possible secrets, that is, passwords and signatures in the query."""
        return shown(self.address)


def shown(address: str) -> str:
    if "://" not in address:
        return address
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def expand(pattern: str) -> list[str]:
    """Return the addresses that a pattern stands for, in its order.

    Args:
        pattern: path or URL with braces (``train-{0000..0146}.tar``) or stars; several are joined by ``::``.

    Raises:
        UsvitError: Nothing matches, or the address needs an fsspec driver that is not installed.
    """
    addresses: list[str] = []
    for part in pattern.split("::"):
        try:
            expanded = list(braceexpand.braceexpand(part))
        except ValueError as error:
            raise UsvitError(f"The braces of source.path '{shown(part)}' are not balanced. Correct it.") from error
        for address in expanded:
            local = _local(address)
            if local is not None:
                stars = any(sign in local for sign in "*?[") and not Path(local).exists()
                found = sorted(glob.glob(local)) if stars else [local]  # noqa: PTH207 - a whole path
            elif "*" in address:
                filesystem, path = _filesystem(address)
                found = sorted(filesystem.unstrip_protocol(name) for name in filesystem.glob(path))
            else:
                found = [address]
            if not found:
                raise UsvitError(f"No shard matches {shown(address)}. Correct source.path.")
            addresses += found
    missing = [path for path in map(_local, addresses) if path is not None and not Path(path).is_file()]
    if missing:
        raise UsvitError(
            f"{len(missing)} of {len(addresses)} shards do not exist: {', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}. Correct source.path, or fetch them."
        )
    if twice := sorted({shown(address) for address in addresses if addresses.count(address) > 1}):
        raise UsvitError(f"source.path contains a shard twice: {twice[0]}. Remove one of them.")
    return addresses


def find(address: str) -> Shard:
    """Look up one shard.

    Raises:
        UsvitError: The shard does not exist, or cannot be reached.
    """
    local = _local(address)
    if local is not None:
        path = Path(local).absolute()
        status = path.stat()
        return Shard(str(path), False, _key(str(path), *file_state(status)))
    _, facts = _facts(address)
    return Shard(address, True, _key(address, *facts.values()))


class ShardFiles:
    """Reader of local and remote shards; remote shards are downloaded whole into a cache.

    Any number of processes may share the cache folder: one fetches while the others wait, and the least recently used
    shards are deleted first.

    Args:
        folder: folder of fetched shards and of all indexes; by default ``shards`` in usvit's cache folder.
        limit_gb: size limit of the folder; by default ``USVIT_SHARD_CACHE_GB``, or ``CACHE_GB``.
    """

    def __init__(self, folder: Path | None = None, limit_gb: float | None = None):
        self._folder = folder or cache_dir() / "shards"
        self._limit = int((_limit_gb() if limit_gb is None else limit_gb) * 1e9)

    def index(self, shard: Shard) -> ShardIndex:
        """Return the index of a shard, from the cache of an earlier run if the shard has not changed.

        Raises:
            UsvitError: See ``read_index``; or the shard cannot be fetched.
        """
        kept = self._folder / f"{shard.key}.index.npz"
        try:
            with open_regular(kept, _INDEX_BYTES) as stored, np.load(stored, allow_pickle=False) as arrays:
                if str(arrays["shard"]) == shard.key:
                    return ShardIndex.of_arrays(dict(arrays))
        except Exception:  # there is no index yet, or it is damaged: NumPy and zipfile raise many types then
            logger.debug(f"The index {kept} is not used.")
        with self.opened(shard) as file:
            index = read_index(file, shard.shown)
        try:
            write_atomic(
                kept, lambda file: np.savez(file, allow_pickle=False, shard=np.array(shard.key), **index.arrays())
            )
        except UsvitError:
            if shard.remote:
                raise
            # without a cache, the index is read again next time
        return index

    def read(self, shard: Shard, offset: int, size: int) -> bytes:
        """Read some bytes of a shard.

        Raises:
            UsvitError: The shard is shorter than expected, or cannot be read.
        """
        with self.opened(shard) as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise UsvitError(
                f"The shard {shard.shown} ends early: it has become shorter since the training began. Fetch it again."
            )
        return data

    @contextmanager
    def opened(self, shard: Shard) -> Iterator[BinaryIO]:
        """Open the file of a shard.

        Raises:
            UsvitError: The shard does not exist, or cannot be fetched.
        """
        file = self._open(shard)
        with file:
            yield file

    def _open(self, shard: Shard) -> BinaryIO:
        if not shard.remote:
            return regular_file(Path(shard.address), follow=True, what="shard")
        path = self._folder / f"{shard.key}.tar"
        try:
            file = open_regular(path)
            os.utime(path)  # marks the shard as recently used
        except FileNotFoundError:
            return self._fetched(shard, path)
        return file

    def _fetched(self, shard: Shard, path: Path) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if not path.exists():  # otherwise another process has fetched it in the meantime
                filesystem, facts = _facts(shard.address)
                if _key(shard.address, *facts.values()) != shard.key:
                    raise UsvitError(
                        f"The shard {shard.shown} has changed since the training began. Start again with a new --out."
                    )
                self._make_room(facts["size"] or 0, path)
                with atomic(path) as file:
                    _get(filesystem, shard, facts["size"], file)
            # Open the file here: it stays readable even if another process deletes it to make room.
            file = open_regular(path)
            self._make_room(0, path)
            return file

    def _make_room(self, size: int, new: Path) -> None:
        """Delete the least recently used shards, but not ``new``, until ``size`` more bytes fit."""
        with filelock.FileLock(self._folder / "room.lock"):
            kept, total = [], size
            for path in self._folder.iterdir():
                with suppress(FileNotFoundError):
                    status = path.stat()
                    total += status.st_size
                    if path.suffix == ".tar" and not path.name.startswith(".") and path != new:
                        kept.append((status.st_mtime_ns, status.st_size, path))
            for _, length, path in sorted(kept):
                if total <= self._limit:
                    return
                path.unlink(missing_ok=True)
                total -= length


def _get(filesystem: Any, shard: Shard, size: int | None, file: BinaryIO) -> None:
    why = ""
    for _ in range(ATTEMPTS):
        try:
            file.seek(0)
            file.truncate()
            with filesystem.open(filesystem._strip_protocol(shard.address), "rb") as source:
                if not _copied(source, file, MOST_BYTES if size is None else size):
                    raise UsvitError(f"The shard {shard.shown} has more bytes than it states: it is not used.")
        except UsvitError:
            raise
        except Exception as error:  # each fsspec driver has its own errors
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            why = _said(error)
            continue
        have = file.tell()
        if size is None or have == size:
            return
        why = f"only {have:,} of {size:,} bytes arrived"
    raise UsvitError(
        f"The shard {shard.shown} could not be fetched in {ATTEMPTS} attempts: {why}. Check the address and the "
        "connection, then run the same command again; it continues where it stopped."
    )


def _copied(source: Any, file: BinaryIO, most: int) -> bool:
    """Copy a shard; return False if it has more than ``most`` bytes."""
    while chunk := source.read(_CHUNK):
        most -= len(chunk)
        if most < 0:
            return False
        file.write(chunk)
    return True


class _Web:
    """Shards by http or https, with the part of the interface of fsspec that is used here.

    Redirects to another server are not followed, and answers keep to ``usvit.web``.
    """

    protocol = ("http", "https")

    def info(self, address: str) -> Json:
        try:
            try:
                answer = self._opened(address, "HEAD")
            except urllib.error.HTTPError as error:  # such as a signed address, which allows GET only
                if error.code in (404, 410):
                    raise
                answer = self._opened(address, "GET")
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                raise FileNotFoundError(address) from error
            raise
        with answer:
            length = answer.headers.get("Content-Length", "")
            state = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        size = int(length) if length.isdecimal() else None
        if size is not None and size > MOST_BYTES:
            raise UsvitError(f"The shard {shown(address)} states {size:,} bytes; at most {MOST_BYTES:,} are loaded.")
        return {"size": size, "ETag": state}

    def open(self, address: str, mode: str) -> Any:
        return self._opened(address, "GET")

    def _opened(self, address: str, method: str) -> http.client.HTTPResponse:
        return open_url(address, WebLimits(MOST_BYTES, TIMEOUT), method=method, timeout=TIMEOUT)

    def glob(self, address: str) -> list[str]:
        raise UsvitError(
            f"A server of http does not list its files, so that {shown(address)} cannot contain a star. Write braces, "
            "such as train-{0000..0146}.tar."
        )

    def _strip_protocol(self, address: str) -> str:
        return address


def _limit_gb() -> float:
    text = os.environ.get("USVIT_SHARD_CACHE_GB", "")
    try:
        value = float(text) if text else CACHE_GB
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        raise UsvitError(f"USVIT_SHARD_CACHE_GB is '{text}': expected a number of gigabytes above 0.")
    return value


def _local(address: str) -> str | None:
    """Return the path of a local address, None if the address is remote."""
    if address.startswith("file://"):
        return address.removeprefix("file://")
    return None if "://" in address else str(Path(address).expanduser())


def _filesystem(address: str) -> tuple[Any, str]:
    if address.startswith(("http://", "https://")):
        return _Web(), address
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise UsvitError(
            f"The shards at {shown(address)} cannot be reached: {_said(error)}. Install the fsspec driver for such "
            "addresses, or fetch the shards and set source.path to their folder."
        ) from error
    return filesystem, path


def _facts(address: str) -> tuple[Any, Json]:
    """Return the file system of an address, and the size and state of the file."""
    filesystem, path = _filesystem(address)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            info = filesystem.info(path)
            break
        except UsvitError:
            raise
        except FileNotFoundError as error:
            raise UsvitError(f"There is no shard {shown(address)}. Correct source.path.") from error
        except Exception as error:  # each fsspec driver has its own errors
            if attempt == ATTEMPTS:
                raise UsvitError(
                    f"The shard {shown(address)} cannot be reached: {_said(error)}. Check the address and the "
                    "connection."
                ) from error
    named = {name.lower(): value for name, value in info.items()}
    state = next(
        (str(named[name]) for name in ("etag", "mtime", "lastmodified", "last_modified") if named.get(name)), ""
    )
    return filesystem, {"size": info.get("size"), "state": state}


def _said(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".")[:300]


def _key(*facts: Any) -> str:
    return hashlib.sha256(json.dumps([str(fact) for fact in facts]).encode()).hexdigest()[:32]
