"""BUS-BRA: one row per image in ``bus_data.csv``, with the patient, the scanner and the authors' folds.

Layout: data_cards/bus_bra.md. Names of files and columns as in public programs that read the release;
the mask of ``bus_0001-l`` is ``mask_0001-l``. The suffix is not read as the side of a breast (see the card). The folds'
files number the test folds from 1. Source: Gomez-Flores et al. 2024, Medical Physics 51(4):3110-3123.
"""

from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, files_in, required_class
from usvit.data.datasets.readers.spreadsheets import match_rows, read_sheet
from usvit.errors import UsvitError

FOLDS = (5, 10)


def looks_like(root: Path, card: DataCard) -> bool:
    return (root / "bus_data.csv").is_file()


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images of ``bus_data.csv`` in its order.

    Raises:
        UsvitError: a file, folder or column is missing; a row has no image or an image no row; a folds' file
            names an unknown image, misses one, or numbers its folds otherwise.
    """
    sheet = read_sheet(root / "bus_data.csv")
    ids = sheet.column("ID")
    images = match_rows(sheet, ids, {path.stem: path for path in files_in(root, "Images")}, "Images")
    masks = {path.stem.replace("mask_", "bus_", 1): path for path in files_in(root, "Masks")}
    if orphans := sorted(set(masks) - set(ids)):
        raise UsvitError(f"the mask '{masks[orphans[0]].name}' has no image '{orphans[0]}.png'")
    folds = {number: _test_folds(root / f"{number}-fold-cv.csv", number, ids) for number in FOLDS}
    columns = zip(*(sheet.column(name) for name in ("Pathology", "Case", "Device", "BIRADS")), strict=True)
    return [
        ImageRecord(
            image_id=image_id,
            path=path.relative_to(root),
            label=required_class(pathology, sheet.where(position), card),
            mask_paths=(masks[image_id].relative_to(root),) if image_id in masks else (),
            patient_id=case or None,
            label_source="biopsy",
            device=device or None,
            birads=birads or None,
            official_folds=tuple((number, folds[number][image_id]) for number in FOLDS),
        )
        for position, (image_id, path, (pathology, case, device, birads)) in enumerate(
            zip(ids, images, columns, strict=True)
        )
    ]


def _test_folds(path: Path, number: int, ids: list[str]) -> dict[str, int]:
    """Map each image to its test fold, counted from 0."""
    sheet = read_sheet(path)
    names, folds = sheet.column("ID"), sheet.column("kFold")
    if unknown := sorted(set(names) - set(ids)):
        raise UsvitError(f"{sheet.name} names the image '{unknown[0]}', which is not in bus_data.csv")
    if missed := sorted(set(ids) - set(names)):
        raise UsvitError(f"{sheet.name} lacks {len(missed)} images of bus_data.csv, such as '{missed[0]}'")
    if double := next((name for name in names if names.count(name) > 1), None):
        raise UsvitError(f"{sheet.name} has two rows for the image '{double}'")
    if set(folds) != {str(fold) for fold in range(1, number + 1)}:
        raise UsvitError(f"the column kFold of {sheet.name} must contain the numbers 1 to {number}, each at least once")
    return {name: int(fold) - 1 for name, fold in zip(names, folds, strict=True)}
