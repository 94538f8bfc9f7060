"""Decode any image file to 8-bit RGB pixels, without trusting the file.

All image files that usvit reads are decoded here: pictures, DICOM, MedMNIST's ``.npz`` and masks in COCO's ``.json``.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage, refuse_frame, refusing, size_text
from usvit.data.io.coco import coco_labels, coco_picture
from usvit.data.io.medmnist import read_npz_frame
from usvit.data.io.raster import PictureFile
from usvit.data.io.sniffing import is_dicom
from usvit.data.io.types import Decoded, UInt8


def read_image(path: Path, frame: int | None = None) -> UInt8:
    """Decode one frame of an image file to 8-bit RGB. Arguments and errors are those of ``decode``.

    Returns:
        (H, W, 3) uint8.
    """
    return decode(path, frame).pixels


def decode(path: Path, frame: int | None = None) -> Decoded:
    """Decode one frame of an image file to 8-bit RGB, with the tissue region of a DICOM header.

    Grey becomes three equal channels, transparency is dropped, and the rotation tag of a camera is applied.
    ``usvit.data.io.grey_levels`` documents how more than 8 bits become 8, and ``usvit.data.io.dicom`` the conversion of
    DICOM files.

    Args:
        path: A picture of ``PICTURE_FORMATS`` or a DICOM file with any name, an ``.npz`` file of MedMNIST, or the mask
            of an image in an annotation file (``usvit.data.io.coco``), which is white on black.
        frame: Number of the frame in the file, from 0; None for the only frame.

    Returns:
        The pixels, (H, W, 3) uint8, the tissue region or None, and flags.

    Raises:
        BadImage: The file is missing, truncated, not an image, larger than ``MAX_PIXELS``, or has no such frame, or it
            has several frames and none was chosen.
    """
    with refusing(path):
        if path.suffix.lower() == ".npz":
            return Decoded(read_npz_frame(path, frame))
        if (mask := coco_picture(path)) is not None:
            return Decoded(mask)
        if is_dicom(path):
            from usvit.data.io.dicom import DicomFile  # imports pydicom, which takes 0.3 s and few runs need

            with DicomFile(path) as file:
                refuse_frame(path, frame, file.facts.frames)
                return Decoded(file.frame(frame or 0), file.facts.regions.tissue, file.flags)
        with PictureFile(path) as picture:
            return Decoded(picture.frame(frame), flags=picture.flags)


def read_mask(path: Path) -> NDArray[np.bool_]:
    """Decode a lesion mask, which is True where any colour channel is above 127.

    Masks may be 1-bit, grey, RGB or RGBA (two of BUSI's); the alpha channel is ignored.

    Returns:
        (H, W) bool.

    Raises:
        BadImage: The file cannot be decoded (``decode``).
    """
    red, green, blue = np.moveaxis(read_image(path), 2, 0)
    return (red | green | blue) > 127  # tests the highest bit; many times faster than a maximum over channels


def read_masks(paths: list[Path], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Read the masks of all lesions of an image and join them with OR.

    Args:
        paths: Mask files of one image; without any, the mask is empty.
        shape: (H, W) of the image.

    Returns:
        (H, W) bool.

    Raises:
        BadImage: A mask cannot be read, or its size differs from that of the image.
    """
    joined = np.zeros(shape, dtype=np.bool_)
    for path in paths:
        mask = read_mask(path)
        if mask.shape != shape:
            raise BadImage(path, f"the mask is {size_text(mask.shape)} pixels but its image is {size_text(shape)}")
        joined |= mask
    return joined


def read_indices(path: Path) -> UInt8:
    """Decode a mask whose grey values are numbers of classes.

    Returns:
        (H, W) uint8.

    Raises:
        BadImage: The file cannot be decoded (``decode``), is coloured, or has categories of COCO beyond 1 to 255.
    """
    if (labels := coco_labels(path)) is not None:
        categories = labels[labels >= 0]
        if categories.min(initial=1) < 1 or categories.max(initial=1) > 255:
            raise BadImage(path, "as numbers of classes, ids of categories are from 1 to 255: 0 is the background")
        return labels.clip(0).astype(np.uint8)
    pixels = read_image(path)
    if (pixels != pixels[:, :, :1]).any():
        raise BadImage(path, "a mask of class numbers must be grey with 8 bits, and this one is coloured")
    return pixels[:, :, 0]
