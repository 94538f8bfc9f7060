"""Writing files so that a reader never sees half of one.

Everything is written to a temporary name in the same folder, flushed to the disk, and
renamed; a run that is killed leaves the old file or the new one, never a mixture.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.errors import UsvitError

# A file where a folder should be, or the reverse, gives EEXIST, ENOTDIR or EISDIR.
_NOT_WRITABLE = (errno.ENOENT, errno.EACCES, errno.EROFS, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk into an error that says what to do.

    Raises:
        UsvitError: no space is left, or the folder cannot be written.
    """
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):  # safetensors' own error
            raise UsvitError(
                f"No space left on the disk while writing {path}. Nothing that was finished is lost: "
                "free some space and give the same command again to resume."
            ) from error
        if number == errno.EFBIG or "File too large" in str(error):
            raise UsvitError(
                f"{path} grows beyond what this process may write (ulimit -f) or what the file system can hold in one "
                "file. Nothing that was finished is lost: raise the limit (ulimit -f unlimited), or choose another "
                "--out, and give the same command again."
            ) from error
        if number in _NOT_WRITABLE:
            raise UsvitError(
                f"Cannot write {path}: {os.strerror(number)}. Choose another folder with --out."
            ) from error
        raise


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path``.

    Args:
        path: the file that shall exist; its folder is made where missing.
        write: called with the temporary path; must create that file.

    Raises:
        UsvitError: the disk is full or cannot be written; ``path`` is as it was before.
    """
    with atomic(path) as temporary:
        write(temporary)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """``write_atomic`` for a file that is filled piece by piece: yields the temporary path, renames it at the end."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The suffix is kept: some writers choose their format by it.
        temporary = path.with_name(f".{path.stem}.partial{path.suffix}")
        try:
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    write_atomic(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write JSON that any reader accepts: NaN and infinity are refused, not written."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV: the same table gives the same bytes on every system."""
    write_text(path, csv_text(table))


def csv_text(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator="\n")


def sha256_of_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_of_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, hint: str = "") -> dict[str, Any]:
    """A JSON object from a file.

    Args:
        path: the file.
        hint: what to say where there is none.

    Raises:
        UsvitError: there is no such file, or it holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsvitError(f"There is no {path}. {hint}".rstrip()) from error
    except (OSError, ValueError) as error:
        raise UsvitError(f"Cannot read {path}: {error}.") from error
    if not isinstance(value, dict):
        raise UsvitError(f"Cannot read {path}: expected a JSON object.")
    return value
