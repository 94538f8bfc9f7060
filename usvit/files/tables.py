"""Tables and arrays in files: CSV, Parquet and what ``np.save`` writes, with the limits of ``usvit.files.read``."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from usvit.errors import UsvitError
from usvit.files.cells import guarded, unguarded
from usvit.files.read import TABLE_BYTES, read_bytes, regular_file
from usvit.files.write import write_text

TABLE_COLUMNS, TABLE_CELLS = 2_000, 100_000_000
"""Upper bounds of a table."""
_TEXTS = (pa.StringArray, pa.LargeStringArray, pa.BinaryArray, pa.LargeBinaryArray)


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
    """Read a CSV table of limited size, without the apostrophes that ``write_csv`` puts before possible formulas.

    Args:
        path: The file, in UTF-8.
        text: Whether all columns are text, or the names of the text columns; an empty text cell is "".
        follow, hint, what: As ``regular_file``.
        needed: Required columns.
        separator: Separator of the columns.
        header: If False, the names of the columns are returned unchanged as the first row.

    Raises:
        UsvitError: As ``regular_file``, or the file is not a table or lacks a column.
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
    if b"'" in content:
        table = _unguarded(table)
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes the first cells of longer rows for names of the rows
        raise UsvitError(
            f"Cannot read {path} as a CSV table: its rows have more cells than its header. A comma in a number or in a "
            "text without quotes may be the cause."
        )
    return _with_columns(table, path, needed)


def _unguarded(table: pd.DataFrame) -> pd.DataFrame:
    """Remove the apostrophes that ``csv_text`` has written before texts that could be formulas."""

    def cell(value: Any) -> Any:
        return unguarded(value) if isinstance(value, str) else value

    texts = [not pd.api.types.is_numeric_dtype(dtype) for dtype in table.dtypes]
    for position, is_text in enumerate(texts):
        if is_text:
            table.isetitem(position, [cell(value) for value in table.iloc[:, position].tolist()])
    return table.rename(columns=cell)


def read_parquet(
    path: Path,
    *,
    follow: bool = False,
    hint: str = "",
    what: str = "",
    needed: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a Parquet table of limited decoded size; a file of some kilobytes can hold gigabytes of text.

    Args:
        path: The file.
        follow, hint, what: As ``regular_file``.
        needed: Required columns.
        columns: Columns to read; None for all.

    Raises:
        UsvitError: As ``regular_file``, or the file is not a table, is too large, or lacks a column.
    """
    with regular_file(path, limit=TABLE_BYTES, follow=follow, hint=hint, what=what) as file:
        try:
            table = bounded_parquet(file, columns).to_pandas(split_blocks=True, self_destruct=True)  # frees each column
        except (ValueError, OSError, MemoryError, KeyError, TypeError, NotImplementedError) as error:
            # pyarrow raises these types. The pandas metadata of the table is untrusted JSON.
            raise UsvitError(f"Cannot read {path} as a Parquet table: {' '.join(str(error).split())[:200]}.") from error
    return _with_columns(table, path, needed)


def bounded_parquet(file: BinaryIO, columns: Sequence[str] | None = None) -> pa.Table:
    """Read an Arrow table with the limits of ``read_parquet``; raise ValueError or an error of pyarrow."""
    with pq.ParquetFile(file, thrift_container_size_limit=1_000_000, thrift_string_size_limit=50_000_000) as opened:
        width = len(opened.schema_arrow.names)
        if width > TABLE_COLUMNS or opened.metadata.num_rows * max(width, 1) > TABLE_CELLS:
            raise ValueError(f"at most {TABLE_COLUMNS:,} columns and {TABLE_CELLS:,} cells are read")
        batches, taken = [], 0
        for batch in opened.iter_batches(batch_size=8192, columns=columns):
            taken += batch.nbytes + sum(map(_text_behind, batch.columns))
            if taken > TABLE_BYTES:
                raise ValueError(f"it takes more than {TABLE_BYTES:,} bytes once decoded")
            batches.append(batch)
        schema = batches[0].schema if batches else opened.schema_arrow
        return pa.Table.from_batches(batches, schema).replace_schema_metadata(opened.schema_arrow.metadata)


def _text_behind(column: pa.Array) -> int:
    """Return the bytes that the cells of a dictionary of texts take, each written out; 0 for other columns."""
    if not pa.types.is_dictionary(column.type) or not isinstance(column.dictionary, _TEXTS):
        return 0
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)


def _with_columns(table: pd.DataFrame, path: Path, needed: Sequence[str]) -> pd.DataFrame:
    table.columns = table.columns.map(str)
    missing = [name for name in needed if name not in table]
    if missing:
        raise UsvitError(f"{path}: no column {', '.join(missing)}.")
    if not table.columns.is_unique:
        raise UsvitError(f"{path}: two columns are named {table.columns[table.columns.duplicated()][0]!r}.")
    return table


def read_array(file: BinaryIO) -> NDArray[Any]:
    """Read the next array that ``np.save`` has written into an open file; objects are refused.

    Raises:
        ValueError: There is none, or it is damaged.
    """
    try:
        return np.lib.format.read_array(file, allow_pickle=False)  # np.load would open a zip archive, too
    except (EOFError, OverflowError, MemoryError, TypeError) as error:
        raise ValueError(f"it is not an array ({type(error).__name__})") from error


def write_csv(path: Path, table: pd.DataFrame, *, root: Path | None = None, mode: int = 0o666) -> None:
    """Write a table as CSV, with ``csv_text``."""
    write_text(path, csv_text(table), root=root, mode=mode)


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV with ``guarded`` texts, without its index; the same table gives the same text."""
    shown = {
        position: column if _has_no_text(column) else pd.Series([_cell(one) for one in column], dtype=object)
        for position, (_, column) in enumerate(table.reset_index(drop=True).items())
    }
    names = [str(_cell(name)) for name in table.columns]
    return pd.DataFrame(shown, index=range(len(table))).to_csv(index=False, header=names, lineterminator="\n")


def _has_no_text(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)


def _cell(value: object) -> object:
    return guarded(value) if isinstance(value, str) else value
