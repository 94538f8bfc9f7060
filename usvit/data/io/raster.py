"""Open pictures (``formats.PICTURE_FORMATS``), and decode their frames to 8-bit RGB.

``decoders`` decodes a frame, and ``grey_levels`` converts more than 8 bits, with one range for all frames of a file.
"""

import io
import os
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from usvit.data.io.bad_image import BadImage, refuse_frame, refusing
from usvit.data.io.decoders import PictureDecoder, decoder_of
from usvit.data.io.formats import PICTURE_NAMES, picture_format
from usvit.data.io.grey_levels import ASSUMED_RANGE, DeepFrame, largest_value, to_8_bits, white_level
from usvit.data.io.sniffing import HEAD_BYTES
from usvit.data.io.types import UInt8
from usvit.files import open_regular

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
    """A file in one of ``PICTURE_FORMATS``, opened once. Pages of a TIFF and pictures of an animation are its frames.

    Close it with a ``with`` block.

    Args:
        source: Path, bytes of the file, or the open file, which is closed together with this object.
        name: Name of the file in errors, if the source is not a path.

    Raises:
        BadImage: The file is damaged or has another format.
    """

    def __init__(self, source: Path | bytes | BinaryIO, name: Path | None = None):
        self._path = source if isinstance(source, Path) else name or Path("image")
        self._kept: tuple[int, DeepFrame] | None = None
        with refusing(self._path), ExitStack() as stack:
            stream = stack.enter_context(_stream(source))
            stream.seek(0)
            found = picture_format(stream.read(HEAD_BYTES))
            if found is None:
                reason = f"it is not an image of a known format ({PICTURE_NAMES}); convert it to PNG"
                raise BadImage(self._path, reason, "not_an_image")
            self._decoder: PictureDecoder = stack.enter_context(decoder_of(found, self._path, stream))
            self._close = stack.pop_all().close

    @cached_property
    def n_frames(self) -> int:
        """Number of pages of a TIFF or of pictures of an animation; 1 for formats without frames."""
        with refusing(self._path):
            return self._decoder.n_frames

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """``assumed_range``, if the file does not state how its values become 0 to 255 (``grey_levels``)."""
        if not self._decoder.may_be_deep:
            return ()
        with refusing(self._path):
            return (ASSUMED_RANGE,) if self._white is not None and self._white[1] else ()

    def frame(self, number: int | None = None) -> UInt8:
        """Decode one frame.

        Args:
            number: Number of the frame, from 0; None for the only one.

        Returns:
            (H, W, 3) uint8.

        Raises:
            BadImage: The frame is truncated, damaged, larger than ``MAX_PIXELS`` or missing; its pixels have an
                unsupported type or an unknown range; or the file has several frames and no number was given.
        """
        with refusing(self._path):
            refuse_frame(self._path, number, self.n_frames)
            frame = self._decoded(number or 0)
            if not isinstance(frame, DeepFrame):
                return frame
            if self._white is None:
                raise BadImage(self._path, "its frames have different depths", "unsupported_pixels")
            shown = to_8_bits(frame, self._white[0])
            return shown if shown.ndim == 3 else np.repeat(shown[:, :, None], 3, axis=2)

    def __enter__(self) -> "PictureFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @cached_property
    def _white(self) -> tuple[float, bool] | None:
        """``white_level`` of the file; None if its frames have 8 bits."""
        last, largest = None, 0.0
        for number in range(self.n_frames):
            try:
                frame = self._decoded(number)
            except BadImage:  # reported when this frame is read
                continue
            if not isinstance(frame, DeepFrame):
                continue
            last, largest = frame, max(largest, largest_value(self._path, frame))
            if frame.stated is not None:  # it holds for all frames
                break
        return None if last is None else white_level(self._path, last, largest)

    def _decoded(self, number: int) -> UInt8 | DeepFrame:
        """Decode a frame, and keep the last one of more than 8 bits, which is read for the range first."""
        if self._kept is not None and self._kept[0] == number:
            return self._kept[1]
        frame = self._decoder.frame(number)
        if isinstance(frame, DeepFrame):
            self._kept = number, frame
        return frame
