"""Spreadsheets beside images: CSV, Excel and Parquet as text, and their rows matched with files."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pandas.errors import ParserWarning

from usvit.errors import UsvitError

SHEET_SUFFIXES = (".csv", ".xlsx", ".parquet")


@dataclass(frozen=True)
class Sheet:
    """A table whose every cell is text; an empty cell is ''."""

    name: str
    rows: pd.DataFrame
    """The index is the row's number in the file, the header being row 1."""

    def column(self, name: str) -> list[str]:
        """One column.

        Raises:
            UsvitError: there is none of this name; those that are there are listed.
        """
        if name not in self.rows:
            raise UsvitError(f"{self.name} has no column '{name}'. It has: {', '.join(self.rows.columns)}")
        return list(self.rows[name])

    def where(self, position: int) -> str:
        """How errors call a row: 'row 7 of labels.csv'."""
        return f"row {self.rows.index[position]} of {self.name}"


def read_sheet(path: Path) -> Sheet:
    """Read a table; CSV may be separated by comma, semicolon or tab, and be UTF-8 or Windows-1252 (as Excel saves it).

    Raises:
        UsvitError: the file is missing, damaged, or has no rows.
    """
    try:
        rows = _read(path)
    except FileNotFoundError as error:
        raise UsvitError(f"no file '{path.name}'") from error
    except Exception as error:  # openpyxl and pyarrow raise zipfile, XML and key errors for a damaged file
        raise UsvitError(f"the spreadsheet {path.name} cannot be read ({' '.join(str(error).split())})") from error
    rows.columns = [str(column).strip() for column in rows.columns]
    rows.index = pd.RangeIndex(2, len(rows) + 2)
    rows = rows.apply(_as_text)
    rows = rows[(rows != "").any(axis=1)]
    if rows.empty:
        raise UsvitError(f"{path.name} has no rows")
    return Sheet(path.name, rows)


def read_private_sheet(path: Path, called: str) -> Sheet:
    """``read_sheet`` of a table that may name patients: no cell of it is quoted, nor is any dropped.

    Args:
        path: the table.
        called: how errors begin, such as 'The table labels.csv'.

    Raises:
        UsvitError: the file is missing, damaged, has no rows, or has cells beyond its header.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)  # cells beyond the header would be dropped
            return read_sheet(path)
    except UsvitError as error:
        line = re.search(r"\bline [0-9]+|Length of header", str(error))
        where = f" ({line[0].replace('Length of header', 'a row')} has more cells than the header)" if line else ""
        raise UsvitError(
            f"{called} cannot be read{where}: it is damaged, or has no rows. Save it as CSV or XLSX."
        ) from error


def only_sheet(root: Path) -> Path:
    """The one table in a folder.

    Raises:
        UsvitError: there is none, or there are several.
    """
    found = sheets_in(root)
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UsvitError(
            f"one spreadsheet ({', '.join(SHEET_SUFFIXES)}) with the class of each image is needed; found: {names}"
        )
    return found[0]


def sheets_in(root: Path) -> list[Path]:
    """Tables directly in a folder; the lock file of an open workbook is none."""
    return [
        path
        for path in sorted(root.iterdir())
        if path.suffix.lower() in SHEET_SUFFIXES and not path.name.startswith((".", "~$"))
    ]


def match_rows(sheet: Sheet, keys: Sequence[str], files: Mapping[str, Path], folder: str) -> list[Path]:
    """The file of each row, where each row must have one and each file a row.

    Args:
        sheet: the table.
        keys: what each row calls its file.
        files: the same, of the files that are there.
        folder: where they were looked for, for errors.

    Raises:
        UsvitError: a row without a file, two rows for one, or a file without a row.
    """
    seen: set[str] = set()
    for position, key in enumerate(keys):
        if key not in files:
            raise UsvitError(f"{sheet.where(position)} names '{key}', which is no image in {folder}")
        if key in seen:
            raise UsvitError(f"{sheet.name} has two rows for the image '{files[key].name}'")
        seen.add(key)
    if forgotten := sorted(set(files) - seen):
        others = f" and {len(forgotten) - 1} more" if len(forgotten) > 1 else ""
        raise UsvitError(f"{sheet.name} has no row for the image '{files[forgotten[0]].name}'{others}")
    return [files[key] for key in keys]


def _read(path: Path) -> pd.DataFrame:
    if path.suffix.lower() == ".parquet":
        return pd.read_parquet(path)
    if path.suffix.lower() == ".xlsx":
        return pd.read_excel(path, dtype=str, keep_default_na=False)
    try:
        encoding = "utf-8-sig"
        text = path.read_text(encoding=encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = path.read_text(encoding=encoding)
    header = text.split("\n", 1)[0]
    separator = max(",;\t", key=header.count)
    # Blank lines are kept here and dropped later, so that errors name the row that an editor shows.
    return pd.read_csv(
        path,
        sep=separator,
        encoding=encoding,
        dtype=str,
        keep_default_na=False,
        index_col=False,
        skip_blank_lines=False,
        on_bad_lines="error",
    )


def _as_text(column: pd.Series) -> pd.Series:
    """Whole numbers without a decimal point: a column of ids with a gap comes from Parquet as 1.0, 2.0."""
    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    return column.astype("string").fillna("").str.strip().astype(object)
