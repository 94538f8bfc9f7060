"""Hostile cells, columns, rows, quotes and encodings of CSV, Excel and Parquet files that a user names."""

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from benchmarks.fuzzing import lists
from benchmarks.fuzzing.child import Ended
from benchmarks.fuzzing.damage import CELLS, csv_cell, parquet_column, whole_text
from benchmarks.fuzzing.files import PLACES, new_file, run_on_file
from benchmarks.fuzzing.harness import Options, Rng
from benchmarks.fuzzing.world import World, make_world


def _table(name: str) -> Callable[[World], pd.DataFrame]:
    def read(w: World) -> pd.DataFrame:
        path = w.root / name
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype=str)

    return read


def _frame(**columns: list[str]) -> Callable[[World], pd.DataFrame]:
    return lambda w: pd.DataFrame(columns)


def _shapes(w: World) -> pd.DataFrame:
    grid = [(width, depth, flops) for width in (64, 128, 256) for depth in (2, 4, 8) for flops in (1.0, 10.0, 100.0)]
    rows = [(width, depth, 4 * width, flops, 1 / width + 1 / depth + flops**-0.1) for width, depth, flops in grid]
    return pd.DataFrame(rows, columns=["width", "depth", "mlp", "gflops", "loss"])


_KEEP = _frame(dataset=["phantom"] * 2, image_id=["phantom-00000", "phantom-00001"])
TABLES: dict[str, Callable[[World], pd.DataFrame]] = {
    "cv --keep-list": _KEEP,
    "data split --keep-list": _KEEP,
    "cv --folds": _table("run/folds.csv"),
    "cv --manifest": _table("run/manifest.parquet"),
    "cv, table of the data set": _table("data/phantom.csv"),
    "data split --manifest": _table("run/manifest.parquet"),
    "pretrain source.coarse": lambda w: pd.DataFrame(
        {"class": ["benign", "malignant", "normal"], "coarse": ["x", "y", "y"]}
    ),
    "shape fit TABLE": _shapes,
    "evaluate TABLE": _table("run/predictions.csv"),
    "evaluate TABLE.parquet": _table("run/predictions.csv"),
    "evaluate --manifest .parquet": _table("run/manifest.parquet"),
    "evaluate --labels .csv": _table("labels.csv"),
    "evaluate --labels .xlsx": _table("labels.csv"),
    "evaluate --labels .parquet": _table("labels.csv"),
    "recalibrate --labels .csv": _table("labels.csv"),
    "compare RUN TABLE": _table("run/predictions.csv"),
    "plan validation --like": _table("run/predictions.csv"),
    "score --input LIST.csv": _frame(path=["a.png", "b.png"], patient_id=["p", "q"]),
    "score --input LIST.xlsx": _frame(path=["a.png", "b.png"], patient_id=["p", "q"]),
    "score --link": _frame(item_id=["a"], name=["b"], path=["c"]),
    "dicom send --record": _frame(
        file=["a"], sha256=["0" * 64], to=["A@127.0.0.1:9"], state=["sent"], status=["0"], error=[""], time=["now"]
    ),
    "data coarse --wordnet": _frame(a=["00001740 03 n 01 entity 0 003 ~ 00001930 n 0000 | that which"]),
}
"""Name of a place in ``files`` -> healthy table."""


def csv_text(path: Path, rng: Rng) -> str:
    """Damage the whole text of a CSV file: its encoding, separators, line ends, header, quotes or width."""
    text = path.read_text()
    head, _, rest = text.partition("\n")
    options = {
        "utf-16": text.encode("utf-16"),
        "utf-16 without a mark": text.encode("utf-16-le"),
        "mixed encodings": text.replace("a", "ä").encode() + text.replace("a", "ä").encode("latin-1"),
        "BOM twice": b"\xef\xbb\xbf\xef\xbb\xbf" + text.encode(),
        "semicolons": text.replace(",", ";").encode(),
        "tabs": text.replace(",", "\t").encode(),
        "line ends of old Macs": text.replace("\n", "\r").encode(),
        "names twice": f"{head},{head}\n{rest}".encode(),
        "no header": rest.encode(),
        "header alone": f"{head}\n".encode(),
        "header of the last column": (text.replace("\n", ",x\n", 1)).encode(),
        "rows too long": text.replace("\n", ",1,2\n").replace(f"{head},1,2", head).encode(),
        "a million columns": ("a," * 1_000_000 + "\n" + "1," * 1_000_000).encode(),
        "a column of a million names": f"{head},{'x' * 1_000_000}\n{rest}".encode(),
        "a quote that never ends": f'{head}\n"{rest}'.encode(),
        "quotes inside": text.replace(",", '",', 7).encode(),
        "NULs": text.replace(",", ",\0", 3).encode(),
        "NULs at the end": text.encode() + bytes(10_000),
        "half a line": text.encode()[: -max(2, len(rest) // 7)],
        "empty lines": text.replace("\n", "\n\n\n").encode(),
        "formulas": text.replace("\n", "\n=cmd|' /C calc'!A0").encode(),
        "controls": text.replace("\n", "\n\x1b[2J\u202e").encode(),
    }
    name = list(options)[rng.integers(len(options))]
    path.write_bytes(options[name])
    return name


def excel(path: Path, table: pd.DataFrame, rng: Rng) -> str:
    """Write an Excel file with hostile cells, or one of the hostile files of ``lists``."""
    import openpyxl

    books = [(name, write) for name, (kind, write) in lists.attacks().items() if kind == "xlsx"]
    if rng.random() < 0.3:
        name, write = books[rng.integers(len(books))]
        os.replace(write(path.parent), path)
        return name
    values = [
        *CELLS[:8],
        "=1+1",
        '=HYPERLINK("file:///etc/passwd")',
        "#N/A",
        True,
        10**300,
        -1.5,
        1e308,
        pd.Timestamp(0),
    ]
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for cells in [list(table.columns), *table.to_numpy().tolist()]:
        sheet.append(cells)
    kind = rng.integers(5)
    row, column = (int(rng.integers(1, most + 1)) for most in (min(sheet.max_row, 5), sheet.max_column))
    value = values[rng.integers(len(values))]
    if kind == 4:
        sheet.merge_cells(start_row=1, start_column=1, end_row=sheet.max_row, end_column=1)
    for one in range(row, sheet.max_row + 1) if kind == 3 else [row] * int(kind < 3):
        sheet.cell(one, column).value = value
    book.save(path)
    return f"merged cells ({row})" if kind == 4 else f"cell {row},{column} = {str(value)[:30]!r}"


def damage_table(path: Path, table: pd.DataFrame, rng: Rng) -> str:
    """Write a damaged table in the format of the file's name; return what is wrong."""
    if path.suffix == ".xlsx":
        return excel(path, table, rng)
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
        return whole_text(path, rng) if rng.random() < 0.25 else parquet_column(path, rng)
    table.to_csv(path, index=False)
    chance = rng.random()
    return csv_text(path, rng) if chance < 0.45 else whole_text(path, rng) if chance < 0.55 else csv_cell(path, rng)


def tables(root: Path, options: Options) -> Iterator[Ended]:
    world = make_world(root)
    names = options.chosen(TABLES)
    for number in options.numbers:
        name = names[number % len(names)]
        place, table = PLACES[name], TABLES[name]
        file = new_file(world, place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            what = damage_table(file, table(world), options.rng(number))
        yield run_on_file(world, place, file, options, name, what)
