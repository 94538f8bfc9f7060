import os
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.conftest import write_sheet
from usvit.data.datasets.readers import spreadsheets
from usvit.data.datasets.readers.spreadsheets import only_sheet, read_private_sheet, read_sheet
from usvit.errors import UsvitError

ROWS = [["id", "name"], ["007", "Zoë"], ["010", ""]]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_csv_is_read_as_excel_and_others_save_it(tmp_path, separator, encoding, newline):
    path = tmp_path / "table.csv"
    path.write_bytes(newline.join(separator.join(row) for row in ROWS).encode(encoding))
    sheet = read_sheet(path)
    assert sheet.column("id") == ["007", "010"]
    assert sheet.column("name") == ["Zoë", ""]


@pytest.mark.slow
def test_ids_stay_text_in_excel_and_whole_numbers_in_parquet_gain_no_point(tmp_path):
    assert read_sheet(write_sheet(tmp_path / "a.xlsx", ROWS)).column("id") == ["007", "010"]
    pd.DataFrame({"id": [7, None, 10], "label": ["a", "b", None]}).to_parquet(tmp_path / "a.parquet")
    sheet = read_sheet(tmp_path / "a.parquet")
    assert sheet.column("id") == ["7", "", "10"]
    assert sheet.column("label") == ["a", "b", ""]


def test_words_that_pandas_takes_for_nothing_stay(tmp_path):
    (tmp_path / "a.csv").write_text("id,label\nNA,None\nnull,nan\n")
    assert read_sheet(tmp_path / "a.csv").column("id") == ["NA", "null"]


def test_rows_are_numbered_as_an_editor_does_although_blank_ones_are_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("id,label\n1,a\n,\n\n2,b\n")
    sheet = read_sheet(tmp_path / "a.csv")
    assert sheet.column("id") == ["1", "2"]
    assert sheet.where(1) == "row 5 of a.csv"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.csv", "a.xlsx", "a.parquet"])
@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3,4\n1,2\n\x81\x8d"], ids=["empty", "damaged"])
def test_a_damaged_table_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsvitError, match=f"the spreadsheet {name} cannot be read"):
        read_sheet(tmp_path / name)


def test_missing_file_missing_column_and_no_rows_are_named(tmp_path):
    for name in ("none.csv", "none.xlsx"):
        with pytest.raises(UsvitError, match=r"The table cannot be read: there is no such file\."):
            read_private_sheet(tmp_path / name, "The table")
    with pytest.raises(UsvitError, match=r"no file 'a.csv'"):
        read_sheet(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("id,label\n")
    with pytest.raises(UsvitError, match=r"a.csv has no rows"):
        read_sheet(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text(" id ,label\n1,a\n")
    with pytest.raises(UsvitError, match=r"a.csv has no column 'path'. It has: id, label"):
        read_sheet(tmp_path / "a.csv").column("path")


def test_the_only_table_is_found_among_what_else_lies_there(tmp_path):
    for name in ("~$a.xlsx", ".b.csv", "notes.txt", "a.xlsx"):
        (tmp_path / name).write_text("")
    assert only_sheet(tmp_path).name == "a.xlsx"


# Hostile tables


def xlsx_with(path, rows):
    """A workbook whose sheet is this XML."""
    openpyxl.Workbook().save(path.with_suffix(".plain"))
    start = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    with zipfile.ZipFile(path.with_suffix(".plain")) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name in plain.namelist():
            sheet = name == "xl/worksheets/sheet1.xml"
            book.writestr(name, start + rows + b"</sheetData></worksheet>" if sheet else plain.read(name))
    return path


@pytest.mark.slow
def test_a_cell_in_the_last_column_of_many_rows_is_refused(tmp_path):
    rows = b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (k, k) for k in range(1, 3000))
    with pytest.raises(spreadsheets.TooLarge, match=r"16,384 columns, but at most 3,000 are read\. Save only the"):
        read_sheet(xlsx_with(tmp_path / "a.xlsx", rows))


@pytest.mark.slow
def test_a_workbook_that_unpacks_to_too_much_is_refused_unread(tmp_path):
    with pytest.raises(spreadsheets.TooLarge, match=r"unpacks to [0-9,]+ bytes, but at most 30,000,000 are read"):
        read_sheet(xlsx_with(tmp_path / "a.xlsx", b" " * 40_000_000))


@pytest.mark.slow
def test_a_parquet_that_unpacks_to_too_much_is_refused(tmp_path):
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(400_000, np.int32)), pa.array(["p" * 10_000]))
    pq.write_table(pa.table({"path": texts}), tmp_path / "list.parquet")
    assert (tmp_path / "list.parquet").stat().st_size < 100_000
    with pytest.raises(UsvitError, match=r"^The table t is too large to be read: .*split longer tables") as caught:
        read_private_sheet(tmp_path / "list.parquet", "The table t")
    assert "ppp" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["," * 20_000 + "\n1\n", "a" + ",b" * 9_000 + "\n" + "1\n" * 3_000])
def test_a_csv_of_too_many_columns_or_cells_is_refused(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(
        spreadsheets.TooLarge, match=r"columns, but at most 3,000 are read|cells, but at most 20,000,000 are read"
    ):
        read_sheet(tmp_path / "a.csv")


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(UsvitError, match="not a regular file"):
        read_sheet(tmp_path / "a.csv")


@pytest.mark.slow
def test_a_table_gives_the_same_cells_read_here_or_in_the_other_process(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("path,n\n\nx,1\n y ,\n")
    here = read_sheet(tmp_path / "a.csv")
    monkeypatch.setattr(spreadsheets, "_SMALL", 0)
    there = read_sheet(tmp_path / "a.csv")
    assert here.rows.equals(there.rows) and list(here.rows.index) == list(there.rows.index) == [3, 4]


@pytest.mark.slow
def test_a_cell_in_the_last_row_is_refused_and_trailing_empty_rows_are_not(tmp_path):
    last = b'<row r="1048576"><c r="A1048576"><v>1</v></c></row>'
    with pytest.raises(spreadsheets.TooLarge, match="more than 100,000 consecutive empty rows"):
        read_sheet(xlsx_with(tmp_path / "a.xlsx", last))
    formatted = b'<row r="1"><c r="A1"><v>7</v></c></row><row r="2"><c r="A2"><v>8</v></c></row><row r="5000"></row>'
    assert read_sheet(xlsx_with(tmp_path / "b.xlsx", formatted)).column("7") == ["8"]


@pytest.mark.slow
def test_columns_of_lists_in_parquet_are_left_out(tmp_path):
    pq.write_table(pa.table({"path": ["a", "b"], "vector": [[1.0], [2.0, 3.0]]}), tmp_path / "a.parquet")
    assert list(read_sheet(tmp_path / "a.parquet").rows.columns) == ["path"]
