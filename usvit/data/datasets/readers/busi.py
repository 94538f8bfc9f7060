"""BUSI: class folders, masks beside the images, several masks for several lesions.

Layout and faults: data_cards/busi.md. Source: Al-Dhabyani et al. 2020, Data in Brief 28:104863.
"""

import re
from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, by_number, image_files, subfolders, without_class
from usvit.errors import UsvitError

CLASSES = ("benign", "malignant", "normal")
_MASK = re.compile(r"^(?P<image>.+)_mask(_\d+)?$")


def looks_like(root: Path, card: DataCard) -> bool:
    """Return True if the class folders exist.

    One may be missing if files of the others are named after the classes; ``read`` then explains the error.

    Dataset B sorted by class has two such folders as well, and the phantom (which has a table) all three.
    """
    present = [name for name in CLASSES if (root / name).is_dir()]
    named = [name for name in present if any((root / name).glob(f"{name}*"))]
    return len(named) >= 2 or (len(present) == len(CLASSES) and not (root / "phantom.csv").exists())


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images of the release, by class and number.

    Raises:
        UsvitError: a class folder is missing, an image has no class or two, or a mask no image.
    """
    found = [folder.name for folder in subfolders(root)]
    for name in CLASSES:
        if name not in found:
            raise UsvitError(f"no folder '{name}'. Found: {', '.join(found) or 'no folders'}")
    others = [root, *(folder for folder in subfolders(root) if folder.name not in CLASSES)]
    strays = [path for folder in others for path in image_files(folder)]
    if strays:
        raise without_class(root, strays)
    return [record for name in CLASSES for record in _read_class(root, name)]


def _read_class(root: Path, label: str) -> list[ImageRecord]:
    masks: dict[str, list[Path]] = {}
    images = []
    for path in image_files(root / label):
        if match := _MASK.match(path.stem):
            masks.setdefault(match["image"], []).append(path)
        else:
            images.append(path)
    orphans = set(masks) - {path.stem for path in images}
    if orphans:
        raise UsvitError(f"the mask '{masks[min(orphans)][0].name}' in '{label}' has no image '{min(orphans)}.png'")
    for path in images:
        if any(path.stem.startswith(other) for other in CLASSES if other != label):
            raise UsvitError(f"the image '{path.name}' is in the folder '{label}', which contradicts its name")
    return [
        ImageRecord(
            image_id=path.stem,
            path=path.relative_to(root),
            label=label,
            mask_paths=tuple(mask.relative_to(root) for mask in masks.get(path.stem, [])),
        )
        for path in sorted(images, key=lambda path: by_number(path.stem))
    ]
