"""Reading files that a stranger may have made: a run, an export, or scores that were sent as an archive.

Only regular files are opened, so that a FIFO or a device cannot hang a command. Sizes, the depth and number of values
of JSON, and what a table takes once it is decoded have upper bounds, so that a small file cannot take gigabytes or
minutes. What passes is well-formed; whether it makes sense is checked by ``usvit.records``.
"""

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from usvit.errors import UsvitError

JSON_BYTES, JSON_DEPTH, JSON_VALUES = 64_000_000, 40, 3_000_000
"""Upper bounds of a JSON file; usvit's own are below 20 MB and 12 levels."""
TABLE_BYTES, TABLE_COLUMNS, TABLE_CELLS = 1_000_000_000, 2_000, 100_000_000
"""Upper bounds of a table: its size in the file, and for Parquet once decoded, too."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def regular_file(
    path: Path, *, limit: int | None = None, follow: bool = False, hint: str = "", what: str = ""
) -> BinaryIO:
    """Open a file for reading in binary if it is a regular file.

    Args:
        path: the file.
        limit: the most bytes that it may have; None: any number.
        follow: whether it may be a symbolic link: only where the user named this very file.
        hint: what to say where there is none.
        what: the kind of file, for that: ``manifest``.

    Raises:
        UsvitError: there is none, or it is a link, FIFO, device or folder, or too large.
    """
    # Without O_NONBLOCK, opening a FIFO waits for somebody to write to it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
        if path.is_symlink():
            raise UsvitError(f"{path} is a symbolic link, and links inside a folder of results are not followed.")
    try:
        handle = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsvitError(f"There is no {what + ' ' if what else ''}{path}. {hint}".rstrip()) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UsvitError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise UsvitError(f"Cannot read {path}: it is no regular file.")
    if limit is not None and status.st_size > limit:
        os.close(handle)
        raise UsvitError(f"Cannot read {path}: it has {status.st_size:,} bytes, and at most {limit:,} are read.")
    return open(handle, "rb")


def read_bytes(path: Path, limit: int, *, follow: bool = False, hint: str = "", what: str = "") -> bytes:
    """The content of a regular file of at most ``limit`` bytes; arguments and errors as ``regular_file``."""
    with regular_file(path, limit=limit, follow=follow, hint=hint, what=what) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UsvitError(f"Cannot read {path}: it grew to more than {limit:,} bytes while it was read.")
    return content


def read_text(path: Path, limit: int = JSON_BYTES, *, follow: bool = False, hint: str = "") -> str:
    """As ``read_bytes``, decoded from UTF-8.

    Raises:
        UsvitError: as ``regular_file``, or it is no UTF-8.
    """
    try:
        return read_bytes(path, limit, follow=follow, hint=hint).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsvitError(
            f"Cannot read {path}: it is no text in UTF-8 ({error.reason} at byte {error.start})."
        ) from None


def read_json(path: Path, hint: str = "", *, follow: bool = False) -> dict[str, Any]:
    """A JSON object from a file.

    Args:
        path: the file.
        hint: what to say where there is none.
        follow: as ``regular_file``.

    Raises:
        UsvitError: as ``regular_file``; or it is no JSON object, or beyond the bounds of this module.
    """
    value = parse_json(read_bytes(path, JSON_BYTES, follow=follow, hint=hint), str(path))
    if not isinstance(value, dict):
        raise UsvitError(f"Cannot read {path}: expected a JSON object.")
    return value


def parse_json(content: bytes, where: str) -> Any:
    """JSON of bounded depth and number of values, whose numbers are finite and whose text can be written again.

    Args:
        content: UTF-8.
        where: what holds it, for errors.

    Raises:
        UsvitError: it is no such JSON.
    """
    # Strings are left out first, so that the brackets in them do not count.
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
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _bounded(text: str) -> int:
    if len(text) > 20:  # 64 bits, with a sign
        raise ValueError(f"{text[:20]}... is too large a number")
    return int(text)


def read_csv(
    path: Path,
    *,
    text: bool | Sequence[str] = True,
    follow: bool = False,
    hint: str = "",
    what: str = "",
    needed: Sequence[str] = (),
    separator: str = ",",
    header: bool = True,
) -> pd.DataFrame:
    """A CSV table of bounded size.

    Args:
        path: the file, in UTF-8.
        text: whether all columns are text, or the names of those that are; an empty cell of text is "".
        follow, hint, what: as ``regular_file``.
        needed: columns that must be there.
        separator: between the columns.
        header: False gives the names of the columns as the first row, as they stand.

    Raises:
        UsvitError: as ``regular_file``; or it is no table, or lacks a column.
    """
    content = read_bytes(path, TABLE_BYTES, follow=follow, hint=hint, what=what)
    head = content[: content.find(b"\n") + 1 or len(content)]
    if head.count(separator.encode()) >= TABLE_COLUMNS or content.count(separator.encode()) > TABLE_CELLS:
        raise UsvitError(f"Cannot read {path}: at most {TABLE_COLUMNS:,} columns and {TABLE_CELLS:,} cells are read.")
    options: dict[str, Any] = {"dtype": str} if text is True else {"dtype": dict.fromkeys(text or (), str)}
    try:
        table = pd.read_csv(
            io.BytesIO(content),
            sep=separator,
            keep_default_na=not text,
            encoding="utf-8-sig",
            header=0 if header else None,
            **options,
        )
    except (ValueError, MemoryError, OverflowError) as error:  # pandas' own errors are ValueErrors
        raise UsvitError(f"Cannot read {path} as a CSV table: {' '.join(str(error).split())[:200]}.") from error
    return _with_columns(table, path, needed)


def read_parquet(
    path: Path,
    *,
    follow: bool = False,
    hint: str = "",
    what: str = "",
    needed: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """A Parquet table whose decoded size is bounded: some kilobytes of it can hold gigabytes of text.

    Args:
        path: the file.
        follow, hint, what: as ``regular_file``.
        needed: columns that must be there.
        columns: only these; None: all.

    Raises:
        UsvitError: as ``regular_file``; or it is no table, too large, or lacks a column.
    """
    with regular_file(path, limit=TABLE_BYTES, follow=follow, hint=hint, what=what) as file:
        try:
            table = bounded_parquet(file, columns).to_pandas()
        except (ValueError, OSError, MemoryError, KeyError, TypeError, NotImplementedError) as error:
            # pyarrow's own errors are ValueErrors and the like; the table's pandas metadata is JSON of its maker.
            raise UsvitError(f"Cannot read {path} as a Parquet table: {' '.join(str(error).split())[:200]}.") from error
    return _with_columns(table, path, needed)


def bounded_parquet(file: BinaryIO, columns: Sequence[str] | None = None) -> pa.Table:
    """As ``read_parquet``, as a table of Arrow; ValueError (and pyarrow's errors) where it cannot be."""
    with pq.ParquetFile(file, thrift_container_size_limit=1_000_000, thrift_string_size_limit=50_000_000) as opened:
        width = len(opened.schema_arrow.names)
        if width > TABLE_COLUMNS or opened.metadata.num_rows * max(width, 1) > TABLE_CELLS:
            raise ValueError(f"at most {TABLE_COLUMNS:,} columns and {TABLE_CELLS:,} cells are read")
        batches, taken = [], 0
        for batch in opened.iter_batches(batch_size=8192, columns=columns):
            taken += batch.nbytes
            if taken > TABLE_BYTES:
                raise ValueError(f"it takes more than {TABLE_BYTES:,} bytes once decoded")
            batches.append(batch)
        schema = batches[0].schema if batches else opened.schema_arrow
        return pa.Table.from_batches(batches, schema).replace_schema_metadata(opened.schema_arrow.metadata)


def _with_columns(table: pd.DataFrame, path: Path, needed: Sequence[str]) -> pd.DataFrame:
    table.columns = table.columns.map(str)
    missing = [name for name in needed if name not in table]
    if missing:
        raise UsvitError(f"{path}: no column {', '.join(missing)}.")
    if not table.columns.is_unique:
        raise UsvitError(f"{path}: two columns are called {table.columns[table.columns.duplicated()][0]!r}.")
    return table


def within(root: Path, name: str) -> Path:
    """The path of a file that a record names, which must lie below a root, links resolved.

    Args:
        root: the folder.
        name: relative to it, with ``/``.

    Raises:
        UsvitError: the name is absolute, or leads out of the root.
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
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_of_file(path: Path, limit: int | None = None) -> str:
    """The SHA-256 of a regular file, in hexadecimal digits; a symbolic link to one is followed.

    Args:
        path: the file.
        limit: the most bytes that it may have: a sparse file of terabytes is made in no time, and hashed in an hour.

    Raises:
        OSError: it is absent or cannot be read.
        UsvitError: it is a FIFO, a device or a folder, which might never end; or it has more than ``limit`` bytes.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UsvitError(f"Cannot read {path}: it is no regular file.")
        if limit is not None and status.st_size > limit:
            raise UsvitError(f"Cannot read {path}: it has {status.st_size:,} bytes, and at most {limit:,} are read.")
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
