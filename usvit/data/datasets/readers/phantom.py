"""The phantom as ``usvit data phantom`` writes it: class folders and a table with patients and views."""

from pathlib import Path

import pandas as pd

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord
from usvit.errors import UsvitError
from usvit.files import read_csv

_COLUMNS = ("image_id", "label", "patient_id", "path", "mask_path", "pixel_spacing_mm")


def looks_like(root: Path, card: DataCard) -> bool:
    return (root / "phantom.csv").is_file()


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images of ``phantom.csv`` in its order.

    Raises:
        UsvitError: the table is damaged, lacks a column, or has no rows.
    """
    try:
        table = read_csv(root / "phantom.csv", follow=True)
        spacing = table.get("pixel_spacing_mm", pd.Series(dtype=str)).astype(float)
    except ValueError as error:  # pandas' parser errors and a wrong encoding are ValueErrors, too
        raise UsvitError(f"phantom.csv is damaged ({' '.join(str(error).split())})") from error
    if missing := [column for column in _COLUMNS if column not in table]:
        raise UsvitError(
            f"phantom.csv lacks the column '{missing[0]}': write the phantom again with 'usvit data phantom'"
        )
    if table.empty:
        raise UsvitError("phantom.csv has no rows")
    return [
        ImageRecord(
            image_id=row["image_id"],
            path=Path(row["path"]),
            label=row["label"],
            mask_paths=(Path(row["mask_path"]),) if row["mask_path"] else (),
            patient_id=row["patient_id"] or None,
            lesion_id=row.get("lesion_id") or None,
            side=row.get("side") or None,
            exam_id=row.get("exam_id") or None,
            label_source="phantom",
            pixel_spacing_mm=row["pixel_spacing_mm"],
            device=row.get("device") or None,
        )
        for row in table.assign(pixel_spacing_mm=spacing).to_dict("records")
    ]
