"""Curated BUSI: the class is in the file name, and masks are in a separate folder.

Layout: data_cards/curated_busi.md; file names are those in a public audit of the release. The number is BUSI's:
``benign_id_20`` is its ``benign (20)``. Source: Aumente-Maestro et al. 2025, CMPB 260:108540.
"""

import re
from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, by_number, class_of, files_in, without_class
from usvit.errors import UsvitError

_IMAGE = re.compile(r"^(?P<label>[A-Za-z]+)_id_\d+$")


def looks_like(root: Path, card: DataCard) -> bool:
    return any((root / "images").glob("*_id_*"))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images by class and number.

    Raises:
        UsvitError: a folder is missing, the name of an image does not contain a class, or a mask has no image.
    """
    images = files_in(root, "images")
    labels = {path: class_of(match["label"], card) for path in images if (match := _IMAGE.match(path.stem))}
    if strays := [path for path in images if labels.get(path) is None]:
        raise without_class(root, strays)
    masks = {path.stem.removesuffix("_mask"): path for path in files_in(root, "masks")}
    if orphans := sorted(set(masks) - {path.stem for path in images}):
        raise UsvitError(f"the mask '{masks[orphans[0]].name}' has no image '{orphans[0]}.png'")
    ordered = sorted(((label, path) for path, label in labels.items() if label), key=_by_class_and_number)
    return [
        ImageRecord(
            image_id=path.stem,
            path=path.relative_to(root),
            label=label,
            mask_paths=(masks[path.stem].relative_to(root),) if path.stem in masks else (),
        )
        for label, path in ordered
    ]


def _by_class_and_number(item: tuple[str, Path]) -> tuple[str, tuple[int, str]]:
    return item[0], by_number(item[1].stem)
