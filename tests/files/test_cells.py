import csv

import numpy as np
import pandas as pd
import pytest

from tests.test_architecture import PACKAGE, nodes_of
from usvit.files import csv_text, guarded, read_csv, unguarded, write_csv

FORMULAS = ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(1)", "\t=1", "\uff1d1+1", "'=1", "''", "'"]
PLAIN = ["a", "", "benign (1)", "a=b", "-0.5", "+3", "-1e-05", 'é, "b"\nc', "O'Neill"]


@pytest.mark.parametrize("text", [*FORMULAS, *PLAIN])
def test_no_text_is_a_formula_and_each_is_restored(text, tmp_path):
    assert guarded(text) == (f"'{text}" if text in FORMULAS else text)
    assert unguarded(guarded(text)) == text
    table = pd.DataFrame({"image_id": [text, "x"], text or "n": [0.5, 1.0]})
    write_csv(tmp_path / "a.csv", table)
    again = read_csv(tmp_path / "a.csv", text=("image_id",))
    assert again["image_id"].tolist() == [text, "x"] and list(again.columns) == list(table.columns)
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "\t"))]


def test_a_table_without_formulas_has_the_bytes_of_pandas():
    table = pd.DataFrame(
        {
            "text": ["a", None, "007"],
            "mixed": pd.Series([1, None, "x"], dtype=object),
            "whole": pd.Series([1, None, 3], dtype=object),
            "number": [0.1, np.nan, -1e-300],
            "flag": [True, False, True],
            "maybe": pd.array([True, None, False], dtype="boolean"),
            "count": pd.array([1, None, -3], dtype="Int64"),
            "kind": pd.Categorical(["b", "a", "b"]),
        },
        index=[5, 3, 9],
    )
    assert csv_text(table) == table.to_csv(index=False, lineterminator="\n")
    assert csv_text(table.iloc[:0]) == table.iloc[:0].to_csv(index=False, lineterminator="\n")
    assert csv_text(pd.DataFrame(columns=["=a"])) == "'=a\n"


def test_tables_are_written_with_guarded_cells_alone():
    """Other writers of CSV guard their cells themselves; this list names them."""
    writers = set()
    for path in PACKAGE.rglob("*.py"):
        for node in nodes_of(path):
            name = getattr(node, "attr", "")
            if name in ("to_csv", "to_excel") or (name in ("writer", "DictWriter") and node.value.id == "csv"):
                writers.add(path.relative_to(PACKAGE).as_posix())
    assert writers == {
        "files/tables.py",
        "scoring/tables/cells.py",  # in portions, with guarded
        "node/sending/send_files.py",  # line by line, with guarded
        "pseudonyms.py",  # the private link table, whose names begin with "./" where needed
    }
