"""BUSIS: images, masks called ``<image>_GT``, and a table with the class.

Layout: data_cards/busis.md, taken from a public program that reads the data set; we have not seen the data set itself.
Images and rows are matched by their number, because in that program the table has ``case001`` for the file ``case1``.
Source: Zhang et al. 2022, Healthcare 10(4):729.
"""

import re
from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, by_number, files_in, required_class
from usvit.data.datasets.readers.spreadsheets import match_rows, read_sheet, sheets_in
from usvit.errors import UsvitError


def looks_like(root: Path, card: DataCard) -> bool:
    """Recognise images in ``Original/`` as in Dataset B, but beside a table that is named BUSIS."""
    return (root / "Original").is_dir() and bool(_tables(root))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images of the table in its order.

    Raises:
        UsvitError: a folder or column is missing, or there are two tables; a row has no image or an image no row;
            a mask has no image.
    """
    tables = _tables(root)
    if len(tables) > 1:
        raise UsvitError(f"there are two tables: {', '.join(path.name for path in tables)}; keep only one of them")
    sheet = read_sheet(tables[0])
    files = {_number(path.stem): path for path in files_in(root, "Original")}
    images = match_rows(sheet, [_number(name) for name in sheet.column("img name")], files, "'Original'")
    masks = {_number(path.stem): path for path in files_in(root, "GT")}
    if orphans := sorted(set(masks) - set(files)):
        raise UsvitError(f"the mask '{masks[orphans[0]].name}' has no image with the same number")
    return [
        ImageRecord(
            image_id=path.stem,
            path=path.relative_to(root),
            label=required_class(label, sheet.where(position), card),
            mask_paths=(masks[key].relative_to(root),) if (key := _number(path.stem)) in masks else (),
        )
        for position, (path, label) in enumerate(zip(images, sheet.column("tumor type"), strict=True))
    ]


def _tables(root: Path) -> list[Path]:
    return [path for path in sheets_in(root) if path.name.lower().startswith("busis")]


def _number(name: str) -> str:
    return str(by_number(name)[0]) if re.search(r"\d", name) else name
