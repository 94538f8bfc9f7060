"""A user's own images with an annotation file in the layout of COCO: outlines or run lengths of lesions.

The class of an image is the category of its lesions, and ``normal`` without any. Source: Lin et al. (2014), Microsoft
COCO: common objects in context, ECCV; https://cocodataset.org/#format-data.
"""

import logging
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError, NamesFile, Public
from usvit.data.datasets.readers import ImageRecord, image_files, required_class
from usvit.data.datasets.readers.table import LabelledRow, default_id
from usvit.data.datasets.units import UNIT_COLUMNS
from usvit.data.io import BadImage, CocoImage, OpenedCoco, coco_file, coco_name

logger = logging.getLogger(__name__)

NORMAL = "normal"
"""Class of images without a lesion."""
_PATTERNS = ("annotations/instances_*.json", "*/_annotations.coco.json")
_KEYS = ("patient_id", *UNIT_COLUMNS, "device", "birads", "pixel_spacing_mm")
"""Keys that an entry of ``images`` may have, by usvit's names."""


def looks_like(root: Path, card: DataCard) -> bool:
    return bool(_annotation_files(root, card))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images of the annotation files in their order.

    Raises:
        UsvitError: A file is damaged, too large or contradicts itself or another one; an image is not there; a category
            is no class of the card; or a key that the card names is in no entry.
    """
    opened = [_opened(file, root) for file in _annotation_files(root, card)]
    for file, coco in opened[1:]:
        if coco.content.names != opened[0][1].content.names:
            said = "{file} and {other} differ in their categories. Use one of them (--table), or make them equal"
            raise DataError(said, file=opened[0][0], other=file)
    extra = {key for _, coco in opened for image in coco.content.images for key in image.model_extra or ()}
    if strange := [key for name, key in card.columns.items() if name not in _KEYS or key not in extra]:
        said = "no entry of 'images' has the key '{key}', or it has no use; these may be named: {known}"
        raise DataError(said, key=strange[0], known=Public(", ".join(_KEYS)))
    records = [_record(root, file, coco, image, card) for file, coco in opened for image in coco.content.images]
    named = {record.path for record in records}
    there = {file.relative_to(root) for folder in {one.parent for one in named} for file in image_files(root / folder)}
    if others := len(there - named):
        logger.warning(f"{others} images in the folders of {card.name} are in no annotation file and are left out.")
    return records


def _annotation_files(root: Path, card: DataCard) -> list[Path]:
    if card.table:
        return [root / card.table] if (root / card.table).is_file() else []
    return next(filter(None, (sorted(root.glob(pattern)) for pattern in _PATTERNS)), [])


def _opened(file: Path, root: Path) -> tuple[NamesFile, OpenedCoco]:
    shown = NamesFile(file.name, "the annotation file")
    if not file.absolute().is_relative_to(root.absolute()):
        raise DataError("{file} lies outside of the data root; put it beside the images", file=shown)
    try:
        return shown, coco_file(root / file.absolute().relative_to(root.absolute()))
    except BadImage as bad:
        raise DataError("{file} cannot be used: {reason}", file=shown, reason=Public(bad.reason)) from bad


def _record(root: Path, file: NamesFile, coco: OpenedCoco, image: CocoImage, card: DataCard) -> ImageRecord:
    where = NamesFile(f"image {image.id} of {file}", f"image {image.id} of {file.hidden}")
    known = {name: (image.model_extra or {}).get(card.columns.get(name, name)) for name in _KEYS}
    names = [coco.content.names[one.category_id] for one in coco.objects(image.id)]
    found = list(dict.fromkeys(required_class(name, where, card) for name in names)) or [NORMAL]
    positive = card.positive_class or "malignant"
    label = positive if positive in found else found[0]
    row = LabelledRow(where, label, {name: str(value) for name, value in known.items() if value is not None})
    path = row.path(root, _place(root, coco.path, image.file_name))
    masks = (coco_name(coco.path, image.id).relative_to(root),)
    return replace(row.record(default_id(path, None), path, root), mask_paths=masks)


def _place(root: Path, file: Path, name: str) -> str:
    """Return the path of an image from the root: ``file_name`` from the first folder in which it is.

    Folders are named as in COCO's own release (``val2017`` of ``instances_val2017.json``, in ``images`` or not), or are
    that of the annotation file, ``images`` or the root.
    """
    split, inner = file.stem.removeprefix("instances_"), PureWindowsPath(name).as_posix()
    folders = (split, f"images/{split}", file.parent.relative_to(root).as_posix(), "images", ".")
    places = [(PurePosixPath(folder) / inner).as_posix() for folder in folders]
    return next((place for place in places if (root / place).is_file()), inner)
