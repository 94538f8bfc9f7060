"""Dataset B (UDIAT): images, masks of the same names, the class in a spreadsheet or in folders.

Layout: data_cards/b.md. Source: Yap et al. 2018, IEEE JBHI 22(4):1218-1226.
"""

from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, busi, busis, by_number, image_files, subfolders, without_class
from usvit.data.datasets.readers.spreadsheets import Spreadsheet, only_sheet, read_sheet
from usvit.data.io import IMAGE_SUFFIXES
from usvit.errors import UsvitError

CLASSES = ("benign", "malignant")
_LABEL_COLUMNS = ("type", "label", "class", "pathology", "diagnosis")


def looks_like(root: Path, card: DataCard) -> bool:
    """Recognise images in ``original/`` (but not BUSIS), or two class folders (but not BUSI or the phantom)."""
    names = {folder.name.lower() for folder in subfolders(root)}
    if "original" in names:
        return not busis.looks_like(root, card)
    return set(CLASSES) <= names and "normal" not in names and not busi.looks_like(root, card)


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images in the order of their numbers.

    Raises:
        UsvitError: no images or no class for them, a row without an image, or a mask without one.
    """
    folders = {folder.name.lower(): folder for folder in subfolders(root)}
    top = folders.get("original", root)
    inner = {folder.name.lower(): folder for folder in subfolders(top)}
    if set(CLASSES) <= set(inner):
        labelled = {path: label for label in CLASSES for path in image_files(inner[label]) if not _is_mask(path)}
    elif top != root:
        images = image_files(top)
        labelled = _labels_from_sheet(root, images) if images else {}
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
    """Map image stems to masks: in ``GT/``, in ``GT/<class>/``, or beside the image as ``<stem>_mask``."""
    found = image_files(gt) if gt else []
    found += [path for folder in (subfolders(gt) if gt else []) for path in image_files(folder)]
    found += [path for name in CLASSES if name in by_class for path in image_files(by_class[name]) if _is_mask(path)]
    return {path.stem.removesuffix("_mask"): path for path in found}


def _labels_from_sheet(root: Path, images: list[Path]) -> dict[Path, str]:
    sheet = read_sheet(only_sheet(root))
    labels = _label_column(sheet)
    images_by_key = {_image_key(path.stem): path for path in images}
    # The column that names most of the images: a grade or a size may look like their numbers, but repeats itself.
    rows = sheet.rows
    image_column = max(rows, key=lambda column: len(set(rows[column].map(_image_key)) & set(images_by_key)))
    labelled: dict[Path, str] = {}
    for name, label in zip(rows[image_column], labels, strict=True):
        path = images_by_key.get(_image_key(name))
        if path is None:
            raise UsvitError(f"the row '{name}' of {sheet.name} does not name an image in 'original'")
        if path in labelled:
            raise UsvitError(f"{sheet.name} has two rows for the image '{path.name}'")
        labelled[path] = label
    return labelled


def _label_column(sheet: Spreadsheet) -> list[str]:
    """Return the column whose values are all one of the two classes, ignoring case."""
    for column in sheet.rows:
        if str(column).lower() in _LABEL_COLUMNS:
            labels = sheet.rows[column].str.lower()
            if labels.isin(CLASSES).all():
                return list(labels)
            if labels.isin(CLASSES).any():
                row = sheet.rows.loc[~labels.isin(CLASSES)].iloc[0]
                raise UsvitError(
                    f"the row {list(row)} of {sheet.name} has no class: '{column}' must be benign or malignant"
                )
    raise UsvitError(
        f"no column of {sheet.name} (such as 'Type') contains benign and malignant; found: {list(sheet.rows.columns)}"
    )


def _image_key(name: object) -> str:
    """Return one key for '000001.png', '000001', '1' and 1.0, as spreadsheets turn names into numbers."""
    stem = str(name).strip().removesuffix(".0")
    stem = Path(stem).stem if Path(stem).suffix.lower() in IMAGE_SUFFIXES else stem
    return stem.lstrip("0") or "0"
