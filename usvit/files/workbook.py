"""Tables as an Excel workbook."""

import datetime
import io
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import openpyxl
from openpyxl.cell import WriteOnlyCell
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from openpyxl.worksheet.worksheet import Worksheet

_MAX_TEXT = 32_767
"""Most characters of a cell in Excel."""
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def workbook_bytes(sheets: Mapping[str, Iterable[tuple[Any, ...]]], widths: Mapping[str, float] | None = None) -> bytes:
    """Return an XLSX file. Text is written as text, so that a spreadsheet executes none; the same rows give the same
    bytes.

    Args:
        sheets: Name of a sheet -> its rows.
        widths: Letter of a column -> its width in characters, in all sheets.
    """
    book = openpyxl.Workbook(write_only=True)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for column, width in (widths or {}).items():
            sheet.column_dimensions[column].width = width
        for row in rows:
            sheet.append([_cell(sheet, value) for value in row])
    buffer = io.BytesIO()
    book.save(buffer)
    return _without_times(buffer.getvalue())


def _cell(sheet: Worksheet, value: Any) -> Any:
    if value is None or value != value:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        cell = WriteOnlyCell(sheet, ILLEGAL_CHARACTERS_RE.sub(" ", str(value))[:_MAX_TEXT])
        cell.data_type = "s"  # also for a text that begins with '='
        return cell
    return value


def _without_times(content: bytes) -> bytes:
    """Return the same archive with fixed times, because openpyxl writes the current time into it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "docProps/core.xml":
                properties = openpyxl.packaging.core.DocumentProperties(
                    creator="usvit", created=datetime.datetime(*_NO_TIME), modified=datetime.datetime(*_NO_TIME)
                )
                text = openpyxl.xml.functions.tostring(properties.to_tree())
            new.writestr(zipfile.ZipInfo(name, _NO_TIME), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
