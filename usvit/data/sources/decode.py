"""From a file, or a shard's bytes, to an RGB picture: as ``usvit.data.images`` decodes, and WebP too."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from usvit.data.images import BadImage, PictureFile, refuse_size, refusing

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})
"""Of files that are taken for images, in lower case."""


def rgb(source: Path | bytes, name: Path | None = None) -> Image.Image:
    """Decode one picture.

    The pixels are those of ``usvit.data.images.read_image`` (a camera's rotation is applied, transparency dropped), so
    that hashes of the same picture are equal upstream and downstream.

    Args:
        source: a file, or its bytes.
        name: what errors call it, where the source is bytes.

    Returns:
        Mode RGB.

    Raises:
        BadImage: it is missing, damaged, too large, or no picture.
    """
    path = source if isinstance(source, Path) else name or Path("image")
    with refusing(path):
        data = source.read_bytes() if isinstance(source, Path) else source
        if not data:
            raise BadImage(path, "the file is empty", "truncated")
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            with Image.open(io.BytesIO(data), formats=("WEBP",)) as image:
                refuse_size(path, image.height, image.width)
                return ImageOps.exif_transpose(image).convert("RGB")
        with PictureFile(data, path) as picture:
            return Image.fromarray(np.asarray(picture.frame()))
