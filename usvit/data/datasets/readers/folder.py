"""A user's own images in class folders, with masks ``<image>_mask*`` beside them.

The layout is ``<class>/<image>``. If every image lies one folder deeper, the other folders are patients:
``<class>/<patient>/<image>`` or ``<patient>/<class>/<image>``.
"""

import re
from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError, Public
from usvit.data.datasets.readers import ImageRecord, class_of, image_files, subfolders, without_class
from usvit.data.io import DICOM_SUFFIXES, IMAGE_SUFFIXES, PICTURE_NAMES, UNREAD_SUFFIXES

_FEWEST_PATIENTS = 5
"""Fewer folders around class folders are other data sets or splits, and not patients."""
_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}
_MASK = re.compile(r"^(?P<image>.+)_mask(_?\d+)?$")


def looks_like(root: Path, card: DataCard) -> bool:
    return any(map(image_files, subfolders(root))) or bool(_class_and_patient(root, card))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images by folder and name; an id is the path without its suffix.

    Raises:
        UsvitError: an image is beside the class folders or deeper; a folder is not a class of the card; a mask has no
            image; a folder contains DICOM files, or pictures or videos of a format that is not read.
    """
    if strays := image_files(root):
        raise without_class(root, strays)
    records = []
    folders, pairs = subfolders(root), _class_and_patient(root, card)
    for folder in folders if not pairs else ():
        records += _read_folder(root, folder, folder, None, card)
    for of_class, patient in pairs:
        deeper = max(of_class, patient, key=lambda folder: len(folder.parts))
        records += _read_folder(root, deeper, of_class, patient.name, card)
    return records


def _class_and_patient(root: Path, card: DataCard) -> list[tuple[Path, Path]]:
    """Return the folder of the class and that of the patient of each folder with images; none if there are no patients.

    Folders that are called train, val or test are not patients.
    """
    folders = subfolders(root)
    inner = [deeper for folder in folders for deeper in subfolders(folder)]
    if any(map(image_files, folders)) or not any(map(image_files, inner)):
        return []
    if _any_class(folders, card):
        pairs = [(deeper.parent, deeper) for deeper in inner]
    elif _any_class(inner, card) and len(folders) >= _FEWEST_PATIENTS:
        pairs = [(deeper, deeper.parent) for deeper in inner]
    else:
        return []
    return [] if any(patient.name.casefold() in _SPLITS for _, patient in pairs) else pairs


def _any_class(folders: list[Path], card: DataCard) -> bool:
    """Return whether one of the folders has the name of a class; of a card without classes, of the positive one."""
    names = {*card.classes, *card.labels} or {card.positive_class or "malignant"}
    return not {name.casefold() for name in names}.isdisjoint(folder.name.casefold() for folder in folders)


def _read_folder(root: Path, folder: Path, of_class: Path, patient: str | None, card: DataCard) -> list[ImageRecord]:
    """List the images of one folder; ``of_class`` is the folder whose name is their class."""
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
    label = class_of(of_class.name, card)
    if images and label is None:
        known = ", ".join(dict.fromkeys([*card.labels, *card.classes]))
        raise DataError(
            "the folder '{folder}' is not a class of the data card '{card}', which has {known}",
            folder=of_class.name,
            card=Public(card.name),
            known=Public(known),
        )
    return [
        ImageRecord(
            image_id=path.relative_to(root).with_suffix("").as_posix(),
            path=path.relative_to(root),
            label=str(label),
            patient_id=patient,
            mask_paths=tuple(mask.relative_to(root) for mask in masks.get(path.stem, [])),
        )
        for path in images
    ]
