"""Dataset B (UDIAT): images, masks of the same names, the class in a spreadsheet or in folders.

Layout: data_cards/b.md. Source: Yap et al. 2018, IEEE JBHI 22(4):1218-1226.
"""

from pathlib import Path

import pandas as pd

from usvit.data.cards import DataCard
from usvit.data.images import IMAGE_SUFFIXES
from usvit.data.readers import ImageRecord, busi, by_number, image_files, subfolders, without_class
from usvit.errors import UsvitError

CLASSES = ("benign", "malignant")
_SHEET_SUFFIXES = (".xlsx", ".csv")
_LABEL_COLUMNS = ("type", "label", "class", "pathology", "diagnosis")


def looks_like(root: Path, card: DataCard) -> bool:
    """Images in ``original/``, or folders named by the two classes that are not BUSI's (nor the phantom's)."""
    names = {folder.name.lower() for folder in subfolders(root)}
    return "original" in names or (set(CLASSES) <= names and "normal" not in names and not busi.looks_like(root, card))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """Every image, in the order of its number.

    Raises:
        UsvitError: no images or no class for them, a row without an image, or a mask without one.
    """
    folders = {folder.name.lower(): folder for folder in subfolders(root)}
    top = folders.get("original", root)
    inner = {folder.name.lower(): folder for folder in subfolders(top)}
    if set(CLASSES) <= set(inner):
        labelled = {path: label for label in CLASSES for path in image_files(inner[label]) if not _is_mask(path)}
    elif top != root:
        labelled = _labels_from_sheet(root, image_files(top))
    else:
        raise UsvitError(f"no folder 'original' and no folders by class. Found: {', '.join(folders) or 'no folders'}")
    others = [folder for name, folder in inner.items() if name not in (*CLASSES, "gt")]
    if strays := {path for folder in (root, top, *others) for path in image_files(folder)} - set(labelled):
        raise without_class(root, sorted(strays))
    if not labelled:
        raise UsvitError(f"no images in '{top.name}'")
    masks = _masks(root, folders.get("gt"), inner)
    stems = {path.stem for path in labelled}
    if orphans := set(masks) - stems:
        raise UsvitError(f"the mask '{masks[min(orphans)].name}' has no image of the same name")
    return [
        ImageRecord(
            image_id=path.stem,
            path=path.relative_to(root),
            label=label,
            mask_paths=(masks[path.stem].relative_to(root),) if path.stem in masks else (),
        )
        for path, label in sorted(labelled.items(), key=lambda item: by_number(item[0].stem))
    ]


def _is_mask(path: Path) -> bool:
    return path.stem.endswith("_mask")


def _masks(root: Path, gt: Path | None, by_class: dict[str, Path]) -> dict[str, Path]:
    """Image stem -> mask: in ``GT/``, in ``GT/<class>/``, or beside the image as ``<stem>_mask``."""
    found = image_files(gt) if gt else []
    found += [path for folder in (subfolders(gt) if gt else []) for path in image_files(folder)]
    found += [path for name in CLASSES if name in by_class for path in image_files(by_class[name]) if _is_mask(path)]
    return {path.stem.removesuffix("_mask"): path for path in found}


def _labels_from_sheet(root: Path, images: list[Path]) -> dict[Path, str]:
    sheets = [path for path in sorted(root.iterdir()) if path.suffix.lower() in _SHEET_SUFFIXES]
    sheets = [path for path in sheets if not path.name.startswith((".", "~$"))]
    if len(sheets) != 1:
        names = ", ".join(path.name for path in sheets) or "none"
        raise UsvitError(f"one spreadsheet (.xlsx or .csv) with the class of each image is needed; found: {names}")
    sheet = _read_sheet(sheets[0])
    labels = _label_column(sheet, sheets[0])
    images_by_key = {_image_key(path.stem): path for path in images}
    # The column that names most of the images: a grade or a size may look like their numbers, but repeats itself.
    image_column = max(sheet.columns, key=lambda column: len(set(sheet[column].map(_image_key)) & set(images_by_key)))
    labelled: dict[Path, str] = {}
    for name, label in zip(sheet[image_column], labels, strict=True):
        path = images_by_key.get(_image_key(name))
        if path is None:
            raise UsvitError(f"the row '{name}' of {sheets[0].name} names no image in 'original'")
        if path in labelled:
            raise UsvitError(f"{sheets[0].name} has two rows for the image '{path.name}'")
        labelled[path] = label
    return labelled


def _read_sheet(path: Path) -> pd.DataFrame:
    try:
        sheet = pd.read_csv(path, dtype=str) if path.suffix.lower() == ".csv" else pd.read_excel(path, dtype=str)
    except Exception as error:  # openpyxl raises zipfile, XML and key errors for a damaged workbook
        raise UsvitError(f"the spreadsheet {path.name} cannot be read ({error})") from error
    return sheet.dropna(how="all").fillna("")


def _label_column(sheet: pd.DataFrame, path: Path) -> pd.Series:
    """The column whose every value is one of the two classes, whatever its case."""
    for column in sheet.columns:
        if str(column).strip().lower() in _LABEL_COLUMNS:
            labels = sheet[column].str.strip().str.lower()
            if labels.isin(CLASSES).all():
                return labels
            if labels.isin(CLASSES).any():
                row = sheet.loc[~labels.isin(CLASSES)].iloc[0]
                raise UsvitError(
                    f"the row {list(row)} of {path.name} has no class: column '{column}' must say benign or malignant"
                )
    raise UsvitError(
        f"no column of {path.name} (such as 'Type') says benign or malignant; found: {list(sheet.columns)}"
    )


def _image_key(name: object) -> str:
    """One key for '000001.png', '000001', '1' and 1.0, as spreadsheets turn names into numbers."""
    stem = str(name).strip().removesuffix(".0")
    stem = Path(stem).stem if Path(stem).suffix.lower() in IMAGE_SUFFIXES else stem
    return stem.lstrip("0") or "0"
