"""The decoder of each format: frames as 8-bit RGB, or as ``DeepFrame`` where a format has more than 8 bits."""

import io
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from usvit.data.io.bad_image import BadImage, refuse_size
from usvit.data.io.codestream import END, read_codestream
from usvit.data.io.formats import PictureFormat
from usvit.data.io.grey_levels import DeepFrame
from usvit.data.io.pnm import decode_pnm
from usvit.data.io.tiff import decode_page, read_pages, unsupported
from usvit.data.io.types import UInt8
from usvit.data.io.video import VideoFrames

cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # its messages quote the file

_TURNED: dict[int, Callable[[NDArray[Any]], NDArray[Any]]] = {
    2: lambda values: values[:, ::-1],
    3: lambda values: values[::-1, ::-1],
    4: lambda values: values[::-1],
    5: lambda values: values.swapaxes(0, 1),
    6: lambda values: np.rot90(values, -1),
    7: lambda values: values[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}
"""EXIF's orientation -> values as they are to be seen."""
_ORIENTATION = 0x0112


def decoder_of(format_: PictureFormat, path: Path, stream: BinaryIO) -> "PictureDecoder":
    """Return the decoder of a file whose format is known; it does not close the stream."""
    kind = _Video if format_.demuxer else _DECODERS.get(format_.name, PictureDecoder)
    return kind(format_, path, stream)


class PictureDecoder:
    """Decodes the frames of one file with Pillow; a context manager. Subclasses decode what Pillow does not.

    Args:
        format_: Format of the file.
        path: Path for errors.
        stream: The open file.
    """

    def __init__(self, format_: PictureFormat, path: Path, stream: BinaryIO):
        self._format, self._path, self._stream = format_, path, stream
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "_image" in self.__dict__:
            self._image.close()

    @property
    def may_be_deep(self) -> bool:
        """True if frames may be ``DeepFrame``."""
        return False

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return int(getattr(self._image, "n_frames", 1)) if self._format.has_frames else 1

    def frame(self, number: int) -> UInt8 | DeepFrame:
        """Decode the frame of this number, from 0: (H, W, 3) uint8, or more than 8 bits."""
        refuse_size(self._path, self._image.height, self._image.width)  # an animation decodes the frames before it
        self._image.seek(number)
        refuse_size(self._path, self._image.height, self._image.width)
        return _rgb(self._image)

    def _open(self) -> None:
        """Read the header."""
        assert self._image

    @cached_property
    def _image(self) -> Image.Image:
        self._stream.seek(0)
        return Image.open(self._stream, formats=(self._format.pillow,))

    def _content(self) -> bytes:
        """Return the whole file."""
        if isinstance(self._stream, io.BytesIO):
            return self._stream.getvalue()  # shares its memory
        self._stream.seek(0)
        return self._stream.read()


class _Png(PictureDecoder):
    @property
    def may_be_deep(self) -> bool:
        return self._depth == 16

    def _open(self) -> None:
        super()._open()
        self._stream.seek(24)
        self._depth = self._stream.read(1)[0]

    def frame(self, number: int) -> UInt8 | DeepFrame:
        if self._depth != 16:
            return super().frame(number)
        if self.n_frames > 1:
            raise BadImage(self._path, "it is an animation of 16 bits; save its frames as files", "unsupported_pixels")
        refuse_size(self._path, self._image.height, self._image.width)
        content = self._content()
        values = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)  # Pillow drops bits of colours
        if values is None or values.dtype != np.uint16 or values.shape[:2] != self._image.size[::-1]:
            raise BadImage(self._path, "it is damaged or truncated (its pixels)")
        if values.ndim == 3:
            values = values[..., 2::-1]  # from BGR or BGRA
        turned = _TURNED.get(self._image.getexif().get(_ORIENTATION, 1))
        values = values if turned is None else turned(values)
        return DeepFrame(np.ascontiguousarray(values), 16, _significant(content))


class _Jpeg(PictureDecoder):
    def _open(self) -> None:
        stream = read_codestream(self._content())
        if stream is not None and (stream.process not in (0xC0, 0xC1, 0xC2) or stream.precision != 8):
            reason = f"it is a JPEG of {stream.precision} bits or without loss; convert it to PNG"
            raise BadImage(self._path, reason, "unsupported_pixels")
        super()._open()


class _Tiff(PictureDecoder):
    def _open(self) -> None:
        self._pages = read_pages(self._path, self._stream)

    @property
    def may_be_deep(self) -> bool:
        return any(page.is_deep for page in self._pages)

    @property
    def n_frames(self) -> int:
        return len(self._pages)

    def frame(self, number: int) -> UInt8 | DeepFrame:
        page = self._pages[number]
        if page.is_deep:
            return decode_page(self._path, self._content(), page)
        refuse_size(self._path, page.height, page.width)
        try:
            self._image.seek(page.number)
            if (palette := page.palette()) is not None:
                self._image.load()
                self._image.putpalette(palette)
            return _rgb(self._image)
        except (UnidentifiedImageError, SyntaxError, KeyError) as error:
            raise unsupported(self._path, page) from error
        except ValueError as error:
            if "raw mode" not in str(error):
                raise
            raise unsupported(self._path, page) from error


class _Jpeg2000(PictureDecoder):
    def _open(self) -> None:
        import openjpeg

        self._stream.seek(0)
        self._says: dict[str, Any] = {**openjpeg.get_parameters(self._stream)}
        refuse_size(self._path, self._says["rows"], self._says["columns"])

    @property
    def may_be_deep(self) -> bool:
        return self._says["precision"] != 8

    def frame(self, number: int) -> UInt8 | DeepFrame:
        if END not in self._content()[-65536:]:
            raise BadImage(self._path, "it ends before its pixels do", "truncated")
        if not self.may_be_deep:
            return super().frame(number)
        import openjpeg  # Pillow turns white of 12-bit colours into black

        bits = self._says["precision"]
        if self._says["samples_per_pixel"] not in (1, 3) or self._says["colourspace"] not in _KNOWN_COLOURS:
            raise BadImage(self._path, "its colours are not supported; save it with 8 bits", "unsupported_pixels")
        self._stream.seek(0)
        values: NDArray[Any] = openjpeg.decode(self._stream)
        if self._says["is_signed"]:
            values = values.astype(np.int32) + 2 ** (bits - 1)
        return DeepFrame(values, bits, 2**bits - 1)


_KNOWN_COLOURS = ("unknown", "unspecified", "sRGB", "monochrome")


class _Pnm(PictureDecoder):
    @property
    def may_be_deep(self) -> bool:
        return True

    def _open(self) -> None:
        """Leave the header to ``frame``."""

    def frame(self, number: int) -> UInt8 | DeepFrame:
        return decode_pnm(self._path, self._content())


class _Video(PictureDecoder):
    def _open(self) -> None:
        self._video = VideoFrames(self._path, self._content(), self._format.demuxer)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._video.close()

    @property
    def n_frames(self) -> int:
        return self._video.n_frames

    def frame(self, number: int) -> UInt8:
        return self._video.frame(number)


_DECODERS = {"PNG": _Png, "JPEG": _Jpeg, "TIFF": _Tiff, "JPEG 2000": _Jpeg2000, "PNM": _Pnm}


def _rgb(image: Image.Image) -> UInt8:
    if image.mode in ("La", "RGBa"):
        image = image.convert(f"{image.mode[:-1]}A")
    if image.mode == "P":  # opacity is dropped; Pillow would warn of it
        image.info.pop("transparency", None)
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def _significant(png: bytes) -> int | None:
    """Return the largest value of the significant bits that a PNG states (``sBIT``); None if it states none."""
    place = 8
    while place + 12 <= len(png) and (kind := png[place + 4 : place + 8]) != b"IDAT":
        length = int.from_bytes(png[place : place + 4], "big")
        if kind == b"sBIT" and length:
            bits = max(png[place + 8 : place + 8 + min(length, 3)])
            return 2**bits - 1 if 0 < bits < 16 else None
        place += length + 12
    return None
