"""Shards by their addresses: files here, or fetched whole into a cache of bounded size when one is first needed."""

import errno
import glob
import hashlib
import json
import os
import shutil
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

from usvit.data.sources.shard_index import ShardIndex, read_index
from usvit.errors import UsvitError
from usvit.files import atomic, write_atomic
from usvit.resources import cache_dir

CACHE_GB = 50.0
"""The most that fetched shards may take, unless ``USVIT_SHARD_CACHE_GB`` says otherwise."""
ATTEMPTS = 3
"""Fetches of one shard before its address counts as broken."""


@dataclass(frozen=True)
class Shard:
    """One shard."""

    address: str
    remote: bool
    key: str
    """Of its address and state (length, date or ETag): another key is another file."""

    @property
    def shown(self) -> str:
        """Its address without what may be secret: a password, a signature in the query."""
        return shown(self.address)


def shown(address: str) -> str:
    if "://" not in address:
        return address
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def expand(pattern: str) -> list[str]:
    """The addresses that a pattern stands for, in its order.

    Args:
        pattern: with braces (``train-{0000..0146}.tar``) or stars; a path, or any URL; several, joined by ``::``.

    Raises:
        UsvitError: nothing is there that fits, or the kind of address needs a driver that is not installed.
    """
    addresses: list[str] = []
    for part in pattern.split("::"):
        try:
            expanded = list(braceexpand.braceexpand(part))
        except ValueError as error:
            raise UsvitError(f"The braces of source.path '{shown(part)}' do not match.") from error
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
                raise UsvitError(f"No shard fits {shown(address)}. Correct source.path.")
            addresses += found
    missing = [path for path in map(_local, addresses) if path is not None and not Path(path).is_file()]
    if missing:
        raise UsvitError(
            f"{len(missing)} of {len(addresses)} shards are not there: {', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}. Correct source.path, or fetch them."
        )
    if twice := sorted({shown(address) for address in addresses if addresses.count(address) > 1}):
        raise UsvitError(f"source.path names a shard twice: {twice[0]}.")
    return addresses


def find(address: str) -> Shard:
    """Look up one shard.

    Raises:
        UsvitError: it is not there, or cannot be reached.
    """
    local = _local(address)
    if local is not None:
        path = Path(local).absolute()
        status = path.stat()
        return Shard(str(path), False, _key(str(path), status.st_size, status.st_mtime_ns))
    _, facts = _facts(address)
    return Shard(address, True, _key(address, *facts.values()))


class ShardFiles:
    """Opens shards, fetching those that are elsewhere.

    Any number of processes may share the cache folder: one fetches, the others wait, and what was used longest ago
    goes first.

    Args:
        folder: of fetched shards and of all indices; None: ``shards`` in usvit's cache folder.
        limit_gb: the most that it may take; None: ``USVIT_SHARD_CACHE_GB``, or ``CACHE_GB``.
    """

    def __init__(self, folder: Path | None = None, limit_gb: float | None = None):
        self._folder = folder or cache_dir() / "shards"
        self._limit = int((_limit_gb() if limit_gb is None else limit_gb) * 1e9)

    def index(self, shard: Shard) -> ShardIndex:
        """The samples of a shard: from an earlier run where it has not changed since, else from its headers.

        Raises:
            UsvitError: as ``read_index``, or the shard cannot be had.
        """
        kept = self._folder / f"{shard.key}.index.npz"
        try:
            with np.load(kept, allow_pickle=False) as arrays:
                return ShardIndex.of_arrays(dict(arrays))
        except (OSError, ValueError, KeyError, EOFError):
            pass  # none yet, or damaged
        with self.opened(shard) as file:
            index = read_index(file, shard.shown)
        try:
            write_atomic(kept, lambda file: np.savez(file, allow_pickle=False, **index.arrays()))
        except UsvitError:
            if shard.remote:
                raise
            # without a cache it is read again next time
        return index

    def read(self, shard: Shard, offset: int, size: int) -> bytes:
        """Some bytes of a shard.

        Raises:
            UsvitError: they are not there (any more).
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
        """A shard's file.

        Raises:
            UsvitError: it is not there, or cannot be fetched.
        """
        file = self._open(shard)
        with file:
            yield file

    def _open(self, shard: Shard) -> BinaryIO:
        if not shard.remote:
            try:
                return open(shard.address, "rb")
            except OSError as error:
                raise UsvitError(f"Cannot read the shard {shard.address}: {error.strerror}.") from error
        path = self._folder / f"{shard.key}.tar"
        try:
            file = open(path, "rb")  # noqa: SIM115 - the caller closes it
            os.utime(path)  # used now: it goes last
        except FileNotFoundError:
            return self._fetched(shard, path)
        return file

    def _fetched(self, shard: Shard, path: Path) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if not path.exists():  # else another process has fetched it while this one waited
                filesystem, facts = _facts(shard.address)
                if _key(shard.address, *facts.values()) != shard.key:
                    raise UsvitError(
                        f"The shard {shard.shown} has changed since the training began. Begin again, with a new --out."
                    )
                self._make_room(facts["size"] or 0, path)
                with atomic(path) as file:
                    _get(filesystem, shard, facts["size"], file)
            # Opened here: it can be read even when another process needs its room.
            file = open(path, "rb")  # noqa: SIM115 - the caller closes it
            self._make_room(0, path)
            return file

    def _make_room(self, size: int, new: Path) -> None:
        """Delete what was used longest ago, until ``size`` more bytes fit; never ``new``."""
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
    why, whole = "", {"block_size": 0} if "http" in filesystem.protocol else {}  # of HTTP: one request, not pieces
    for _ in range(ATTEMPTS):
        try:
            file.seek(0)
            file.truncate()
            with filesystem.open(filesystem._strip_protocol(shard.address), "rb", **whole) as source:
                shutil.copyfileobj(source, file)
        except Exception as error:  # each driver has its own
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            why = _said(error)
            continue
        have = file.tell()
        if size is None or have == size:
            return
        why = f"{have:,} of {size:,} bytes came"
    raise UsvitError(
        f"The shard {shard.shown} cannot be fetched: {why}, {ATTEMPTS} times. Check the address and the connection, "
        "then give the same command again: it goes on where it was."
    )


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
    """The path of an address on this machine's file system."""
    if address.startswith("file://"):
        return address.removeprefix("file://")
    return None if "://" in address else str(Path(address).expanduser())


def _filesystem(address: str) -> tuple[Any, str]:
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise UsvitError(
            f"Shards of {shown(address)} cannot be reached: {_said(error)}. Install the driver of fsspec for such "
            "addresses, or fetch the shards and name their folder."
        ) from error
    return filesystem, path


def _facts(address: str) -> tuple[Any, dict[str, Any]]:
    """The file system of an address, and what tells one state of the file from another."""
    filesystem, path = _filesystem(address)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            info = filesystem.info(path)
            break
        except FileNotFoundError as error:
            raise UsvitError(f"There is no shard {shown(address)}. Correct source.path.") from error
        except Exception as error:  # each driver has its own
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
