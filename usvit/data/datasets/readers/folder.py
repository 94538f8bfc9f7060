"""A user's own images in class folders: ``<class>/<image>``, with masks ``<image>_mask*`` beside them."""

import re
from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError, Public
from usvit.data.datasets.readers import ImageRecord, class_of, image_files, subfolders, without_class
from usvit.data.io import DICOM_SUFFIXES, IMAGE_SUFFIXES, PICTURE_NAMES, UNREAD_SUFFIXES

_MASK = re.compile(r"^(?P<image>.+)_mask(_?\d+)?$")


def looks_like(root: Path, card: DataCard) -> bool:
    return any(image_files(folder) for folder in subfolders(root))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images by folder and name; an id is ``<folder>/<name without suffix>``.

    Raises:
        UsvitError: an image is beside the class folders or deeper; a folder is not a class of the card; a mask has no
            image; a folder contains DICOM files, or pictures or videos of a format that is not read.
    """
    if strays := image_files(root):
        raise without_class(root, strays)
    return [record for folder in subfolders(root) for record in _read_class(root, folder, card)]


def _read_class(root: Path, folder: Path, card: DataCard) -> list[ImageRecord]:
    files = image_files(folder)
    if dicom := [path for path in sorted(folder.iterdir()) if path.suffix.lower() in DICOM_SUFFIXES]:
        raise DataError(
            "'{folder}' contains DICOM files ({file}): use the data set 'dicom' with a table",
            folder=folder.name,
            file=dicom[0].name,
        )
    if unread := [path for path in sorted(folder.iterdir()) if path.suffix.lower() in UNREAD_SUFFIXES]:
        raise DataError(
            "'{folder}' contains {file}, whose format is not read: convert it to PNG (one file for each frame of a "
            "video), or move it away. These formats are read: {formats}",
            folder=folder.name,
            file=unread[0].name,
            formats=Public(PICTURE_NAMES),
        )
    inner = [path for deeper in subfolders(folder) for path in sorted(deeper.rglob("*"))]
    if strays := [path for path in inner if path.suffix.lower() in IMAGE_SUFFIXES]:
        raise without_class(root, strays)
    masks: dict[str, list[Path]] = {}
    for path in files:
        if match := _MASK.match(path.stem):
            masks.setdefault(match["image"], []).append(path)
    images = [path for path in files if not _MASK.match(path.stem)]
    if orphans := sorted(set(masks) - {path.stem for path in images}):
        raise DataError(
            "the mask '{mask}' in '{folder}' has no image '{image}'",
            mask=masks[orphans[0]][0].name,
            folder=folder.name,
            image=orphans[0],
        )
    label = class_of(folder.name, card)
    if images and label is None:
        known = ", ".join(dict.fromkeys([*card.labels, *card.classes]))
        raise DataError(
            "the folder '{folder}' is not a class of the data card '{card}', which has {known}",
            folder=folder.name,
            card=Public(card.name),
            known=Public(known),
        )
    return [
        ImageRecord(
            image_id=f"{folder.name}/{path.stem}",
            path=path.relative_to(root),
            label=str(label),
            mask_paths=tuple(mask.relative_to(root) for mask in masks.get(path.stem, [])),
        )
        for path in images
    ]
