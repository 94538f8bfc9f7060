import pandas as pd
import pytest

from tests.data.conftest import write_sheet
from usvit.data.readers.sheets import only_sheet, read_sheet
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


@pytest.mark.parametrize("name", ["a.csv", "a.xlsx", "a.parquet"])
@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3,4\n1,2\n\x81\x8d"], ids=["empty", "damaged"])
def test_a_damaged_table_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsvitError, match=f"the spreadsheet {name} cannot be read"):
        read_sheet(tmp_path / name)


def test_missing_file_missing_column_and_no_rows_are_named(tmp_path):
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
