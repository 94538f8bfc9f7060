"""GDPH & SYSUCC: one folder per hospital, the class in the file name, BI-RADS of two readers in a workbook.

Layout: data_cards/gdph_sysucc.md; the workbook's columns ID, BIRADS-reader1, BIRADS-reader2 and fold, and that
ids do not repeat across the hospitals, as public programs check them. The column ``fold`` is not offered as
official folds because it ignores patients and the many near-duplicates. Source: Mo et al. 2023, IEEE TMI.
"""

import re
from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, by_number, class_of, files_in, without_class
from usvit.data.datasets.readers.spreadsheets import match_rows, read_sheet
from usvit.errors import UsvitError

_HOSPITALS = ("GDPH", "SYSUCC")
_WORKBOOK = "BIRADS&FOLD.xlsx"
_IMAGE = re.compile(r"^(?P<label>[A-Za-z]+) ?\(\d+\)$")


def looks_like(root: Path, card: DataCard) -> bool:
    return any((root / name).is_dir() for name in _HOSPITALS)


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images by hospital, class and number; ``birads`` is '4a/4b' where the readers said 4a and 4b.

    Raises:
        UsvitError: a folder, the workbook or a column is missing; the name of an image does not contain a class, or
            occurs in both hospitals; a row has no image or an image no row.
    """
    images = [path for name in _HOSPITALS for path in files_in(root, name)]
    labels = {path: class_of(match["label"], card) for path in images if (match := _IMAGE.match(path.stem))}
    if strays := [path for path in images if labels.get(path) is None]:
        raise without_class(root, strays)
    by_id = {path.stem: path for path in images}
    if double := next((path for path in images if by_id[path.stem] != path), None):
        raise UsvitError(f"both hospitals have an image '{double.stem}'")
    sheet = read_sheet(root / _WORKBOOK)
    rows = match_rows(sheet, sheet.column("ID"), by_id, "GDPH or SYSUCC")
    readings = zip(sheet.column("BIRADS-reader1"), sheet.column("BIRADS-reader2"), strict=True)
    birads = {
        path: f"{_reading(first)}/{_reading(second)}" for path, (first, second) in zip(rows, readings, strict=True)
    }
    ordered = sorted(images, key=lambda path: (path.parent.name, str(labels[path]), by_number(path.stem)))
    return [
        ImageRecord(
            image_id=path.stem,
            path=path.relative_to(root),
            label=str(labels[path]),
            birads=birads[path],
        )
        for path in ordered
    ]


def _reading(cell: str) -> str:
    """Return a category in lower case; the stray ``c`` of the release is no reading."""
    category = cell.lower()
    return "" if category == "c" else category
