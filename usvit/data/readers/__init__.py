"""Readers: one file for each data-set layout, one small interface.

A reader is a module with two functions::

    looks_like(root: Path, card: DataCard) -> bool             # is this the data set's own top folder?
    read(root: Path, card: DataCard) -> list[ImageRecord]      # every image, with its class; no pixel is decoded

A new data set is a new file here, a line in ``READERS`` and a card in ``data_cards/``; one that a
folder or a table describes needs a card alone.
"""

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from usvit.data.cards import DataCard
from usvit.data.identities import DataError, Public
from usvit.data.images import IMAGE_SUFFIXES
from usvit.errors import UsvitError, unknown


@dataclass(frozen=True)
class ImageRecord:
    """One image as its data set presents it; paths are relative to the data set's top folder."""

    image_id: str
    """Stable and readable, unique in its data set: for BUSI the file's stem."""
    path: Path
    label: str
    mask_paths: tuple[Path, ...] = ()
    patient_id: str | None = None
    """None where the data set has no patient ids: never invented."""
    label_source: str = "dataset"
    device: str | None = None
    birads: str | None = None
    pixel_spacing_mm: float | None = None
    frame: int = 0
    """Which picture of a file that holds several (a cine loop, an array of images), from 0."""
    official_folds: tuple[tuple[int, int], ...] = ()
    """Folds that the data set's authors drew: (number of folds, this image's test fold from 0), such as ((5, 3),)."""


class Reader(Protocol):
    """The interface of a reader module."""

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
    "table": "table",
    "dicom": "dicom",
}
"""A card's ``reader`` -> the module here that has it."""


def reader_for(card: DataCard) -> Reader:
    """The reader module that a card names.

    Raises:
        UsvitError: it names none (the card says why), or an unknown one.
    """
    if card.reader is None:
        raise UsvitError(f"The data set '{card.name}' cannot be read: {card.no_reader}")
    if card.reader not in READERS:
        raise unknown("reader", card.reader, sorted(READERS), f"The data card '{card.name}' names it.")
    module: Reader = importlib.import_module(f"usvit.data.readers.{READERS[card.reader]}")
    return module


def image_files(folder: Path) -> list[Path]:
    """Image files directly in ``folder``, in the order of their names; hidden ones (.DS_Store, ._x) are no images."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def files_in(root: Path, name: str) -> list[Path]:
    """Image files of the folder ``name`` in ``root``.

    Raises:
        UsvitError: there is no such folder; those that are there are listed.
    """
    if not (root / name).is_dir():
        found = ", ".join(folder.name for folder in subfolders(root)) or "no folders"
        raise DataError("no folder '{name}'. Found: {found}", name=Public(name), found=found)
    return image_files(root / name)


def class_of(word: str, card: DataCard) -> str | None:
    """The class that a word of the release stands for, whatever its case; None: the card knows none.

    Open classes (a card with none) take any word for a class, unless ``labels`` leads elsewhere.
    """
    known = {name.casefold(): name for name in card.classes}
    known |= {label.casefold(): name for label, name in card.labels.items()}
    return known.get(word.casefold(), None if card.classes else word or None)


def refuse_class(word: str, where: str, card: DataCard) -> NoReturn:
    """Raise the error for a row whose label is none that the card knows."""
    known = ", ".join(dict.fromkeys([*card.labels, *card.classes]))
    expected = Public(f"; the data card '{card.name}' knows {known}" if known else "")
    if not word:
        raise DataError("{where} has no label{expected}", where=Public(where), expected=expected)
    raise DataError(
        "{where} has the unknown label '{word}'{expected}", where=Public(where), word=word, expected=expected
    )


def by_number(stem: str) -> tuple[int, str]:
    """Sorts 'benign (2)' before 'benign (10)', and '2' before '10'."""
    match = re.search(r"\d+", stem)
    return (int(match[0]) if match else 0, stem)


def subfolders(folder: Path) -> list[Path]:
    """Visible folders directly in ``folder``, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__MACOSX")))


def without_class(root: Path, strays: Iterable[Path]) -> UsvitError:
    """The error for images whose class nothing tells."""
    names = [path.relative_to(root) for path in strays]
    places = ", ".join(f"{{{name}}}" for name in "abc"[: len(names)])
    return DataError(
        f"no class is known for {places}{{more}} (put it where the layout says, or move it out of the folder)",
        **dict(zip("abc", names, strict=False)),
        more=Public(f" and {len(names) - 3} more" if len(names) > 3 else ""),
    )
