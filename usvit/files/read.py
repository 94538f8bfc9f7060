"""Read untrusted files, such as a run, an export, or scores that were sent as an archive.

Only regular files are opened, so that a FIFO or a device cannot block a command. The size of files, the depth and
number of values of JSON, and the decoded size of tables are limited, so that a small file cannot take gigabytes or
minutes. This module checks that content is well-formed; ``usvit.records`` checks whether it is valid.
"""

import errno
import hashlib
import io
import json
import math
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from usvit.errors import UsvitError, shortened
from usvit.plain_data import Json

JSON_BYTES, JSON_DEPTH, JSON_VALUES = 64_000_000, 40, 3_000_000
"""Upper bounds of a JSON file; usvit's own are below 20 MB and 12 levels."""
TEXT_BYTES = 16_000_000
"""Upper bound of a text file for which the caller states none."""
_PORTION = 16_000_000
TABLE_BYTES = 1_000_000_000
"""Upper bound of a table, and of the decoded size of Parquet."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Unreadable(UsvitError):
    """A file cannot be read.

    Args:
        path: The file.
        reason: Why, without the path, for errors that must not name it.
        text: The text of the error. Default: the path and the reason.
    """

    def __init__(self, path: Path | str, reason: str, text: str = ""):
        super().__init__(text or f"Cannot read {path}: {reason}.")
        self.reason = reason


class _DiskFile(io.FileIO):
    """A file for reading whose disk errors, such as EIO, are errors with words."""

    def __init__(self, handle: int, path: Path):
        super().__init__(handle, "rb")
        self._shown = path

    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise self._unreadable(error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> Unreadable:
        return Unreadable(self._shown, f"{error.strerror} (the disk or the connection to it may be damaged)")


def regular_file(
    path: Path, *, limit: int | None = None, follow: bool = False, hint: str = "", what: str = ""
) -> io.BufferedReader:
    """Open a file for reading in binary if it is a regular file. Errors of its disk are ``Unreadable``.

    Args:
        path: The file.
        limit: Maximum size in bytes; None for no limit.
        follow: Whether it may be a symbolic link. Use it only for a file that the user named.
        hint: Advice that the error gives if the file is missing.
        what: Kind of the file in that error, such as ``manifest``.

    Raises:
        Unreadable: The file is missing or too large, or is a link, FIFO, device or folder.
    """
    if not follow and path.is_symlink():
        text = f"{path} is a symbolic link, and links inside a folder of results are not followed."
        raise Unreadable(path, "it is a symbolic link", text)
    try:
        handle, size = _open(path, follow)
    except (FileNotFoundError, NotADirectoryError) as error:
        text = f"There is no {what + ' ' if what else ''}{shortened(str(path), 1000)}. {hint}".rstrip()
        raise Unreadable(path, "it does not exist", text) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(shortened(str(path), 1000), reason) from error
    if limit is not None and size > limit:
        os.close(handle)
        raise Unreadable(path, f"it has {size:,} bytes, and at most {limit:,} are read")
    return io.BufferedReader(_DiskFile(handle, path))


def open_regular(path: Path, limit: int | None = None) -> io.BufferedReader:
    """Open a file as ``regular_file`` for a decoder that treats an ``OSError`` itself; symbolic links are followed.

    Raises:
        OSError: The file is missing, cannot be read or has more than ``limit`` bytes, or is a FIFO, device or folder.
    """
    handle, size = _open(path, follow=True)
    if limit is not None and size > limit:
        os.close(handle)
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {limit:,} are read", str(path))
    return open(handle, "rb")


def _open(path: Path, follow: bool) -> tuple[int, int]:
    """Open a regular file; return its handle and its size. Raises OSError, or ValueError for a NUL in the path."""
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return handle, status.st_size


def file_state(status: os.stat_result) -> tuple[int, ...]:
    """Return numbers that change when a file is written to or replaced; caches of what a file holds are keyed by them.

    Size, time of modification and inode are not enough: two files of equal size can exchange their contents in place,
    and their times can be set back. The time of the last change of the status (ctime) cannot be set. On Windows it is
    the time of creation, so there a file that is exchanged in this way is not noticed.
    """
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino


def read_bytes(path: Path, limit: int, *, follow: bool = False, hint: str = "", what: str = "") -> bytes:
    """Read a regular file of at most ``limit`` bytes. Arguments and errors are those of ``regular_file``."""
    with regular_file(path, limit=limit, follow=follow, hint=hint, what=what) as file:
        try:
            content = file.read(os.fstat(file.fileno()).st_size + 1)
            if more := file.read(1):  # the file grows, or does not state its size
                portions, length = [content, more], len(content) + len(more)
                while length <= limit and (more := file.read(_PORTION)):
                    portions.append(more)
                    length += len(more)
                content = b"".join(portions)
        except MemoryError as error:
            raise Unreadable(path, "there is too little memory for it") from error
    if len(content) > limit:
        raise Unreadable(path, f"it grew to more than {limit:,} bytes while it was read")
    return content


def read_text(
    path: Path,
    limit: int = TEXT_BYTES,
    *,
    encoding: str = "utf-8",
    follow: bool = False,
    hint: str = "",
    what: str = "",
) -> str:
    """Read a text file, in UTF-8 unless ``encoding`` is given; lines may end as on any system.

    Other arguments and errors are those of ``regular_file``.

    Raises:
        Unreadable: Also if the file is not text in this encoding.
    """
    content = read_bytes(path, limit, follow=follow, hint=hint, what=what)
    try:
        return io.TextIOWrapper(io.BytesIO(content), encoding=encoding).read()
    except UnicodeDecodeError as error:
        raise Unreadable(path, f"it is not text in {encoding.upper().removesuffix('-SIG')}") from error


def read_json(path: Path, hint: str = "", *, follow: bool = False) -> Json:
    """Read a JSON object from a file.

    Args:
        path: The file.
        hint: Advice that the error gives if the file is missing.
        follow: As ``regular_file``.

    Raises:
        UsvitError: As ``regular_file``, or the content is not a JSON object or exceeds the bounds of this module.
    """
    value = parse_json(read_bytes(path, JSON_BYTES, follow=follow, hint=hint), str(path))
    if not isinstance(value, dict):
        raise UsvitError(f"Cannot read {path}: expected a JSON object.")
    return value


def parse_json(content: bytes, where: str) -> Any:
    """Parse JSON of limited depth and number of values, with finite numbers and valid text only.

    Args:
        content: JSON in UTF-8.
        where: Name of the source in errors.

    Raises:
        UsvitError: The content is not such JSON.
    """
    # Strings are removed first, so that brackets in them do not count.
    marks = np.frombuffer(_STRING.sub(b"", content), dtype=np.uint8)
    opened, closed = np.isin(marks, (0x5B, 0x7B)), np.isin(marks, (0x5D, 0x7D))
    depth = int(np.cumsum(opened.astype(np.int32) - closed).max(initial=0))
    values = int(opened.sum()) + int((marks == 0x2C).sum())
    if depth > JSON_DEPTH or values > JSON_VALUES:
        raise UsvitError(
            f"Cannot read {where}: {depth} levels with {values:,} values, and at most {JSON_DEPTH} levels with "
            f"{JSON_VALUES:,} values are read."
        )
    try:
        value = json.loads(
            content.decode("utf-8"), parse_constant=_refused_constant, parse_float=_finite, parse_int=_bounded
        )
        if _SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        raise UsvitError(f"Cannot read {where}: it is damaged ({' '.join(str(error).split())[:200]}).") from error
    return value


def _refused_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def _bounded(text: str) -> int:
    if len(text) > 20:  # 64 bits, with a sign
        raise ValueError(f"{text[:20]}... is too large")
    return int(text)


def within(root: Path, name: str) -> Path:
    """Return the path of a file that a record names, after checking that it lies below a root, links resolved.

    Args:
        root: The folder.
        name: Path relative to it, with ``/``.

    Raises:
        UsvitError: The name is absolute or leads out of the root.
    """
    below = PurePosixPath(name)
    path = root / below
    try:
        inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL
        inside = False
    if "\x00" in name or below.is_absolute() or Path(name).is_absolute() or not inside:
        raise UsvitError(f"The recorded path {name!r} does not lie below {root}, so it is not read.")
    return path


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_of_file(path: Path, limit: int | None = None) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal digits; symbolic links are followed.

    Args:
        path: The file.
        limit: Maximum size in bytes. A sparse file of terabytes is made instantly, but takes hours to hash.

    Raises:
        Unreadable: The file is missing, cannot be read, is a FIFO, a device or a folder, or has more than ``limit``
            bytes.
    """
    with regular_file(path, limit=limit, follow=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
