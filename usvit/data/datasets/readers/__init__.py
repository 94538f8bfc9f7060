"""Readers of data sets: one module per layout, with the same two functions.

A reader is a module with two functions::

    looks_like(root: Path, card: DataCard) -> bool             # is this the data set's own top folder?
    read(root: Path, card: DataCard) -> list[ImageRecord]      # every image, with its class; no pixel is decoded

A new data set needs a module here, a line in ``READERS`` and a card in ``data_cards/``; one in class folders or with a
table only needs a card.
"""

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError, Public
from usvit.data.io import IMAGE_SUFFIXES
from usvit.errors import UsvitError, unknown


@dataclass(frozen=True)
class ImageRecord:
    """One image as its data set presents it; paths are relative to the data set's top folder."""

    image_id: str
    """Stable, readable id that is unique in its data set, such as the stem of the file for BUSI."""
    path: Path
    label: str
    mask_paths: tuple[Path, ...] = ()
    patient_id: str | None = None
    """None if the data set has no patient ids; ids are never invented."""
    lesion_id: str | None = None
    """Unique in the data set."""
    side: str | None = None
    """``left`` or ``right`` breast."""
    exam_id: str | None = None
    """Unique in the data set; StudyInstanceUID of a DICOM file."""
    label_source: str = "dataset"
    device: str | None = None
    birads: str | None = None
    pixel_spacing_mm: float | None = None
    frame: int | None = None
    """Frame of a file with several images (a cine loop, an array of images), from 0. None: the file must have one
    frame only, so that no frame is left out without a word."""
    official_folds: tuple[tuple[int, int], ...] = ()
    """Official folds: (number of folds, test fold of this image from 0), such as ((5, 3),)."""


class Reader(Protocol):
    """Interface of a reader module."""

    def looks_like(self, root: Path, card: DataCard) -> bool: ...

    def read(self, root: Path, card: DataCard) -> list[ImageRecord]: ...


READERS = {
    "busi": "busi",
    "b": "dataset_b",
    "bus_bra": "bus_bra",
    "breast": "breast",
    "bus_uclm": "bus_uclm",
    "curated_busi": "curated_busi",
    "breastmnist": "breastmnist",
    "gdph_sysucc": "gdph_sysucc",
    "busis": "busis",
    "phantom": "phantom",
    "folder": "folder",
    "masks": "masks",
    "coco": "coco",
    "table": "table",
    "dicom": "dicom",
}
"""``reader`` of a card -> module in this package."""


def reader_for(card: DataCard) -> Reader:
    """Return the reader module that a card names.

    Raises:
        UsvitError: The card names no reader and says why, or an unknown one.
    """
    if card.reader is None:
        raise UsvitError(f"The data set '{card.name}' cannot be read: {card.no_reader}")
    if card.reader not in READERS:
        raise unknown("reader", card.reader, sorted(READERS), f"The data card '{card.name}' names it.")
    module: Reader = importlib.import_module(f"usvit.data.datasets.readers.{READERS[card.reader]}")
    return module


def image_files(folder: Path) -> list[Path]:
    """List the image files directly in ``folder``, sorted by name, without hidden files (.DS_Store, ._x)."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def files_in(root: Path, name: str) -> list[Path]:
    """List the image files of the folder ``name`` in ``root``.

    Raises:
        UsvitError: There is no such folder; the error lists the existing ones.
    """
    if not (root / name).is_dir():
        found = ", ".join(folder.name for folder in subfolders(root)) or "no folders"
        raise DataError("no folder '{name}'. Found: {found}", name=Public(name), found=found)
    return image_files(root / name)


def class_of(word: str, card: DataCard) -> str | None:
    """Return the class of a label in the release, ignoring case; None if the card does not know it.

    For a card without classes, any label is a class, unless ``labels`` maps it to another one.
    """
    known = {name.casefold(): name for name in card.classes}
    known |= {label.casefold(): name for label, name in card.labels.items()}
    return known.get(word.casefold(), None if card.classes else word or None)


def required_class(word: str, where: str, card: DataCard) -> str:
    """Return the class of a row's label.

    Raises:
        UsvitError: The row has no label, or one that the card does not know.
    """
    if found := class_of(word, card):
        return found
    known = ", ".join(dict.fromkeys([*card.labels, *card.classes]))
    place = where if isinstance(where, Public) else Public(where)
    expected = Public(f"; the data card '{card.name}' knows {known}" if known else "")
    if not word:
        raise DataError("{where} has no label{expected}", where=place, expected=expected)
    raise DataError("{where} has the unknown label '{word}'{expected}", where=place, word=word, expected=expected)


def by_number(stem: str) -> tuple[int, str]:
    """Return a sort key that puts 'benign (2)' before 'benign (10)', and '2' before '10'."""
    match = re.search(r"\d+", stem)
    return (int(match[0]) if match else 0, stem)


def subfolders(folder: Path) -> list[Path]:
    """List the visible folders directly in ``folder``, sorted by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__MACOSX")))


def without_class(root: Path, strays: Iterable[Path]) -> UsvitError:
    """Return the error for images without a known class."""
    names = [path.relative_to(root) for path in strays]
    places = ", ".join(f"{{{name}}}" for name in "abc"[: len(names)])
    return DataError(
        f"no class is known for {places}{{more}} (follow the layout, or move it out of the folder)",
        **dict(zip("abc", names, strict=False)),
        more=Public(f" and {len(names) - 3} more" if len(names) > 3 else ""),
    )
