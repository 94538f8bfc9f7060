"""Readers: one file for each data-set layout, one small interface.

A reader is a module with two functions::

    looks_like(root: Path) -> bool             # is this the data set's own top folder?
    read(root: Path) -> list[ImageRecord]      # every image, with its class; no pixel is decoded

A new data set is a new file here, a line in ``READERS`` and a card in ``data_cards/``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from usvit.data.images import IMAGE_SUFFIXES
from usvit.errors import UsvitError


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


class Reader(Protocol):
    """The interface of a reader module."""

    def looks_like(self, root: Path) -> bool: ...

    def read(self, root: Path) -> list[ImageRecord]: ...


def reader_for(dataset: str) -> Reader:
    """The reader module of a data set that has a card."""
    from usvit.data.readers import busi, dataset_b, phantom

    readers: dict[str, Reader] = {"busi": busi, "b": dataset_b, "phantom": phantom}
    if dataset not in readers:
        raise UsvitError(f"The data set '{dataset}' has a card but no reader in this version; see 'usvit data list'.")
    return readers[dataset]


def image_files(folder: Path) -> list[Path]:
    """Image files directly in ``folder``, in the order of their names; hidden ones (.DS_Store, ._x) are no images."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
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
    names = [path.relative_to(root).as_posix() for path in strays]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return UsvitError(f"no class is known for {shown} (put it where the layout says, or move it out of the folder)")
