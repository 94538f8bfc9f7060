"""Images and masks in two folders of the same layout, ``images`` and ``annotations``, as in ADE20k.

Source of the layout: Zhou et al. (2017), Scene parsing through ADE20K dataset, CVPR.
"""

from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError
from usvit.data.datasets.readers import ImageRecord, files_in, image_files, subfolders

IMAGES, MASKS = "images", "annotations"
CLASS = "image"
"""Class of every image."""


def looks_like(root: Path, card: DataCard) -> bool:
    return (root / IMAGES).is_dir() and (root / MASKS).is_dir()


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images with their masks; an id is the path in ``images`` without its suffix.

    Raises:
        UsvitError: a folder is missing; an image has no mask, or a mask no image; two files differ in the suffix alone.
    """
    images, masks = _files(root, IMAGES), _files(root, MASKS)
    for name, here, there, what in (
        *((name, images, masks, "mask") for name in sorted(set(images) - set(masks))),
        *((name, masks, images, "image") for name in sorted(set(masks) - set(images))),
    ):
        number = len(set(here) - set(there))
        more = f" ({number} such files)" if number > 1 else ""
        said = f"'{{file}}' has no {what} of the same name{more}: images and annotations must be pairs"
        raise DataError(said, file=here[name].relative_to(root).as_posix())
    return [
        ImageRecord(
            image_id=name,
            path=images[name].relative_to(root),
            label=CLASS,
            mask_paths=(masks[name].relative_to(root),),
        )
        for name in sorted(images)
    ]


def _files(root: Path, folder: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    below = [*files_in(root, folder), *(file for one in subfolders(root / folder) for file in image_files(one))]
    for file in below:
        name = file.relative_to(root / folder).with_suffix("").as_posix()
        if name in found:
            raise DataError("'{one}' and '{other}' differ only in the suffix", one=found[name].name, other=file.name)
        found[name] = file
    return found
