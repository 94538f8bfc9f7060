"""Decode frames of PNG, JPEG, TIFF and BMP files to 8-bit RGB."""

import io
import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

from usvit.data.io.bad_image import BadImage, refuse_frame, refuse_size, refusing
from usvit.data.io.sniffing import HEAD_BYTES, kind_of
from usvit.data.io.types import UInt8
from usvit.files import open_regular

PICTURE_FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
"""Formats that Pillow may decode. GIF and WebP are left out: no scanner writes them, and every decoder adds attack
surface."""
IN_MEMORY = 256_000_000
"""Files of up to this many bytes are read whole. Otherwise Pillow would allocate gigabytes for a chunk that claims to
be that large."""


def _stream(source: Path | bytes | BinaryIO) -> BinaryIO:
    if isinstance(source, Path):
        with open_regular(source) as file:
            if os.fstat(file.fileno()).st_size > IN_MEMORY:
                return open_regular(source)
            source = file.read()
    return io.BytesIO(source) if isinstance(source, bytes) else source


class PictureFile:
    """A file in one of ``PICTURE_FORMATS``, opened once. The pages of a TIFF are its frames.

    Close it with a ``with`` block.

    Args:
        source: Path, bytes of the file, or the open file, which is closed together with this object.
        name: Name of the file in errors, if the source is not a path.

    Raises:
        BadImage: The file is damaged or has another format.
    """

    def __init__(self, source: Path | bytes | BinaryIO, name: Path | None = None):
        self._path = source if isinstance(source, Path) else name or Path("image")
        with refusing(self._path), ExitStack() as stack:
            stream = stack.enter_context(_stream(source))
            stream.seek(0)
            head = stream.read(HEAD_BYTES)
            if kind_of(head) != "picture":
                raise BadImage(self._path, "it is not an image of a known format", "not_an_image")
            stream.seek(0)
            self._image = Image.open(stream, formats=PICTURE_FORMATS)
            self._close = stack.pop_all().close

    @property
    def n_frames(self) -> int:
        """Number of pages of a TIFF; 1 for other formats, where further pictures are previews or animations."""
        with refusing(self._path):
            return int(getattr(self._image, "n_frames", 1)) if self._image.format == "TIFF" else 1

    def frame(self, number: int = 0) -> UInt8:
        """Decode one frame.

        Args:
            number: Number of the frame, from 0.

        Returns:
            (H, W, 3) uint8.

        Raises:
            BadImage: The frame is truncated, damaged, larger than ``MAX_PIXELS`` or missing, or its pixels have an
                unsupported type.
        """
        with refusing(self._path):
            refuse_frame(self._path, number, self.n_frames if number else 1)
            self._image.seek(number)
            refuse_size(self._path, self._image.height, self._image.width)
            if self._image.mode in ("I", "F"):
                reason = f"its pixels (mode {self._image.mode}) have no stated range; save it with 8 or 16 bits"
                raise BadImage(self._path, reason, "unsupported_pixels")
            return np.asarray(_to_rgb(ImageOps.exif_transpose(self._image)))

    def __enter__(self) -> "PictureFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._image.close()
        self._close()


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) // 257).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")
