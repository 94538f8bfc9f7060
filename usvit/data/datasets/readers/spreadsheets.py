"""Spreadsheets beside images: CSV, Excel and Parquet as text, and their rows matched with files."""

import io
import os
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pandas.errors import ParserWarning

from usvit.data.datasets.identities import DataError, NamesFile, OwnColumns, Public
from usvit.errors import UsvitError
from usvit.files import open_regular
from usvit.limited import LimitedCalls, LimitReached

SHEET_SUFFIXES = (".csv", ".xlsx", ".parquet")
MAX_ROWS = 2_000_000
_MAX_COLUMNS = 3_000
MAX_CELLS = 20_000_000
_MAX_BLANK = 100_000
"""Maximum number of consecutive empty rows in a workbook, which may be formatted by mistake to its last row."""
_MAX_TEXT = 256_000_000
"""Maximum number of characters of a CSV file, and of bytes of an unpacked Parquet file."""
_MAX_XLSX_BYTES = 30_000_000
"""Maximum unpacked size of an XLSX file: half a million cells, which take openpyxl about ten seconds."""
_INSTEAD = "Save only the needed columns as CSV, and split longer tables into several"
_SMALL = 1_000_000
"""Maximum bytes of a CSV file that is read in this process, which takes at most a second."""
_SMALL_COLUMNS = 100
_PORTION = 100_000
"""Number of cells that the other process sends at a time."""


class TooLarge(DataError):
    """A table beyond the bounds above; the text quotes no cell.

    Args:
        text: why.
        path: the table, which begins the text.
    """

    def __init__(self, text: str, path: Path | None = None):
        named = f"the spreadsheet {path.name} {text}" if path is not None else text
        super().__init__("{said}", said=NamesFile(named, f"the spreadsheet {text}" if path is not None else text))


@dataclass(frozen=True)
class Spreadsheet:
    """A table whose cells are all text; an empty cell is ''."""

    name: str
    rows: pd.DataFrame
    """The index is the row's number in the file, the header being row 1."""

    def column(self, name: str) -> list[str]:
        """Return one column.

        Raises:
            UsvitError: There is no such column; the error lists the existing ones.
        """
        if name not in self.rows:
            raise DataError(
                "{sheet} has no column '{name}'. It has: {columns}",
                sheet=self.shown,
                name=Public(name),
                columns=OwnColumns(", ".join(self.rows.columns)),
            )
        return list(self.rows[name])

    @property
    def shown(self) -> NamesFile:
        """Name of the table for error messages."""
        return NamesFile(self.name, "the table")

    def where(self, position: int) -> NamesFile:
        """Return the name of a row for error messages: 'row 7 of labels.csv'."""
        row = self.rows.index[position]
        return NamesFile(f"row {row} of {self.name}", f"row {row} of the table")


def read_sheet(path: Path) -> Spreadsheet:
    """Read a table; CSV may be separated by comma, semicolon or tab, and be UTF-8 or Windows-1252 (as Excel saves it).

    Raises:
        UsvitError: the file is missing, damaged, or has no rows.
    """
    return _sheet(path, strict=False)


def read_private_sheet(path: Path, called: str) -> Spreadsheet:
    """Read a table that may name patients; no cell is quoted in errors, and none is dropped.

    Args:
        path: the table.
        called: how errors begin, such as 'The table labels.csv'.

    Raises:
        UsvitError: the file is missing, damaged, has no rows, or has cells beyond its header.
    """
    if not path.exists():
        raise UsvitError(f"{called} cannot be read: there is no such file.")
    try:
        return _sheet(path, strict=True)
    except TooLarge as error:  # its text quotes no cell
        raise UsvitError(f"{called} is too large to be read: {error.__cause__}. {_INSTEAD}.") from error
    except UsvitError as error:
        line = re.search(r"\bline [0-9]+|Length of header", str(error))
        where = f" ({line[0].replace('Length of header', 'a row')} has more cells than the header)" if line else ""
        raise UsvitError(
            f"{called} cannot be read{where}: it is damaged, or has no rows. Save it as CSV or XLSX."
        ) from error


def _sheet(path: Path, *, strict: bool) -> Spreadsheet:
    """Read a table; if ``strict``, cells beyond the header are an error instead of being dropped."""
    try:
        rows = _read(path, strict) if _is_small(path) else _read_apart(path, strict)
    except FileNotFoundError as error:
        raise DataError("no file '{name}'", name=NamesFile(path.name, "the table")) from error
    except (TooLarge, LimitReached) as error:
        raise TooLarge(f"is too large to be read: {error}. {_INSTEAD}", path) from error
    except Exception as error:  # openpyxl and pyarrow raise zipfile, XML and key errors for a damaged file
        reason = " ".join(str(error).split())
        raise DataError(
            "the spreadsheet {name} cannot be read ({reason})",
            name=NamesFile(path.name, f"({path.suffix.lower()})"),
            reason=reason,
        ) from error
    if rows.empty:
        raise DataError("{name} has no rows", name=NamesFile(path.name, "the table"))
    return Spreadsheet(path.name, rows)


def _refuse_many(rows: int, columns: int, text: int) -> None:
    """Refuse a table beyond the bounds above.

    Raises:
        TooLarge: it has more rows, columns, cells or text.
    """
    for found, most, what in (
        (rows, MAX_ROWS, "rows"),
        (columns, _MAX_COLUMNS, "columns"),
        (rows * columns, MAX_CELLS, "cells"),
        (text, _MAX_TEXT, "bytes of text"),
    ):
        if found > most:
            raise TooLarge(f"it has {found:,} {what}, but at most {most:,} are read")


def _is_small(path: Path) -> bool:
    """Return True for a short and narrow CSV file, which cannot exceed the memory of this process."""
    with open_regular(path) as file:
        if path.suffix.lower() in (".xlsx", ".parquet") or os.fstat(file.fileno()).st_size > _SMALL:
            return False
        return max(file.readline(_SMALL).count(sign) for sign in (b",", b";", b"\t")) < _SMALL_COLUMNS


def _read_apart(path: Path, strict: bool) -> pd.DataFrame:
    """Call ``_read`` in a separate process with limited memory and time."""
    with LimitedCalls() as calls:
        columns, *portions = calls.values(_told, path, strict)
    if isinstance(columns, Exception):
        raise columns
    parts = [pd.DataFrame(cells, index=index, columns=columns, dtype=object) for index, cells in portions]
    return pd.concat(parts) if parts else pd.DataFrame(columns=columns)


def _told(path: Path, strict: bool) -> Iterator[object]:
    """Yield what the other process sends: column names, then portions of (row numbers, cells), or an exception."""
    try:
        rows = _read(path, strict)
    except (FileNotFoundError, TooLarge) as error:
        yield error
        return
    except MemoryError:
        raise
    except Exception as error:
        yield ValueError(" ".join(str(error).split())[:1000])
        return
    yield list(rows.columns)
    size = max(1, _PORTION // max(1, len(rows.columns)))
    for start in range(0, len(rows), size):
        part = rows.iloc[start : start + size]
        yield part.index.to_numpy(), part.to_numpy(dtype=object)


def only_sheet(root: Path) -> Path:
    """Return the only table in a folder.

    Raises:
        UsvitError: there is no table, or there are several.
    """
    found = sheets_in(root)
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise DataError(
            "one spreadsheet ({suffixes}) with the class of each image is needed; found: {names}",
            suffixes=Public(", ".join(SHEET_SUFFIXES)),
            names=NamesFile(names, f"{len(found)} of them"),
        )
    return found[0]


def sheets_in(root: Path) -> list[Path]:
    """List the tables directly in a folder, without the lock files of open workbooks."""
    return [
        path
        for path in sorted(root.iterdir())
        if path.suffix.lower() in SHEET_SUFFIXES and not path.name.startswith((".", "~$"))
    ]


def match_rows(sheet: Spreadsheet, keys: Sequence[str], files: Mapping[str, Path], folder: str) -> list[Path]:
    """Return the file of each row; every row must have a file, and every file a row.

    Args:
        sheet: the table.
        keys: name of the file in each row.
        files: name -> existing file.
        folder: folder of the files, for error messages.

    Raises:
        UsvitError: a row without a file, two rows for one, or a file without a row.
    """
    seen: set[str] = set()
    for position, key in enumerate(keys):
        if key not in files:
            raise UsvitError(f"{sheet.where(position)} names '{key}', which is not an image in {folder}")
        if key in seen:
            raise UsvitError(f"{sheet.name} has two rows for the image '{files[key].name}'")
        seen.add(key)
    if forgotten := sorted(set(files) - seen):
        others = f" and {len(forgotten) - 1} more" if len(forgotten) > 1 else ""
        raise UsvitError(f"{sheet.name} has no row for the image '{files[forgotten[0]].name}'{others}")
    return [files[key] for key in keys]


def _read(path: Path, strict: bool) -> pd.DataFrame:
    """Read the cells of a table as text, in columns; see ``_sheet``."""
    with warnings.catch_warnings():
        if strict:
            warnings.simplefilter("error", ParserWarning)
        rows = {".parquet": _read_parquet, ".xlsx": _read_xlsx}.get(path.suffix.lower(), _read_csv)(path)
    rows.columns = [str(column).strip() for column in rows.columns]
    rows.index = pd.RangeIndex(2, len(rows) + 2)
    rows = rows.apply(_as_text)
    return rows[(rows != "").any(axis=1)]


def _content(path: Path) -> bytes:
    """Return the bytes of a file, which are at most four for each character."""
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > 4 * _MAX_TEXT:
            raise TooLarge(f"it has {size:,} bytes")
        return file.read()


def _read_csv(path: Path) -> pd.DataFrame:
    content = _content(path)
    try:
        encoding = "utf-8-sig"
        text = content.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = content.decode(encoding)
    header = text.split("\n", 1)[0]
    separator = max(",;\t", key=header.count)
    # A short row is filled up to the header's length, so that cells are counted as if every row were as long.
    _refuse_many(text.count("\n"), header.count(separator) + 1, len(text))
    # Blank lines are kept here and dropped later, so that errors name the row that an editor shows.
    return pd.read_csv(
        io.BytesIO(content),
        sep=separator,
        encoding=encoding,
        dtype=str,
        keep_default_na=False,
        index_col=False,
        skip_blank_lines=False,
        on_bad_lines="error",
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file without nested columns, which are not text and would take minutes to convert."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_regular(path) as opened, pq.ParquetFile(opened) as file:
        _refuse_many(file.metadata.num_rows, file.metadata.num_columns, 0)
        batches, text = [], 0
        flat = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]
        for batch in file.iter_batches(batch_size=4096, columns=flat):  # a dictionary of long texts unpacks to any size
            text += batch.nbytes
            _refuse_many(0, 0, text)
            batches.append(batch)
        schema = pa.schema([file.schema_arrow.field(name) for name in flat], file.schema_arrow.metadata)
        return pa.Table.from_batches(batches, schema).to_pandas()


def _read_xlsx(path: Path) -> pd.DataFrame:
    import openpyxl

    content = io.BytesIO(_content(path))
    with zipfile.ZipFile(content) as archive:
        unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > _MAX_XLSX_BYTES:
        raise TooLarge(f"it unpacks to {unpacked:,} bytes, but at most {_MAX_XLSX_BYTES:,} are read")
    book = openpyxl.load_workbook(content, read_only=True, data_only=True, keep_links=False)
    try:
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # what the file says of its own size may be wrong
        rows: list[list[str]] = []
        cells = blank = 0
        for row in sheet.iter_rows(values_only=True):
            values = [_cell(value) for value in row]
            while values and not values[-1]:
                values.pop()
            # Openpyxl fills up to the column and the row of the next cell, wherever that is.
            cells += len(row)
            blank = 0 if values else blank + 1
            if blank > _MAX_BLANK:
                raise TooLarge(f"it has more than {_MAX_BLANK:,} consecutive empty rows")
            if len(values) > _MAX_COLUMNS:
                _refuse_many(0, len(values), 0)
            if cells > MAX_CELLS:
                raise TooLarge(f"it has more than {MAX_CELLS:,} cells")
            rows.append(values)
    finally:
        book.close()
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        return pd.DataFrame()
    width = max(map(len, rows))
    _refuse_many(len(rows), width, 0)
    header = [*rows[0], *([""] * (width - len(rows[0])))]
    table = pd.DataFrame([[*row, *([""] * (width - len(row)))] for row in rows[1:]], columns=range(width), dtype=object)
    names = (name or f"Unnamed: {number}" for number, name in enumerate(header))
    return table.set_axis(_distinct(names), axis=1)


def _distinct(names: Iterable[str]) -> list[str]:
    """Make names distinct: ``a, a`` becomes ``a, a.1``, as in pandas' CSV reader."""
    taken: set[str] = set()
    following: dict[str, int] = {}
    found = []
    for name in names:
        free = name
        while free in taken:
            following[name] = following.get(name, 0) + 1
            free = f"{name}.{following[name]}"
        taken.add(free)
        found.append(free)
    return found


def _cell(value: object) -> str:
    """Convert a cell to text as pandas does for Excel: whole numbers have no decimal point."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _as_text(column: pd.Series) -> pd.Series:
    """Convert a column to text; whole numbers (1.0 in a Parquet column with gaps) lose the decimal point."""
    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    if column.dtype == object or isinstance(column.dtype, pd.StringDtype):  # pandas' way takes a millisecond a column
        pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
        return pd.Series(
            ["" if missing else str(value).strip() for value, missing in pairs], column.index, dtype=object
        )
    return column.astype("string").fillna("").str.strip().astype(object)
