"""Open a DICOM file once, and read its metadata and its frames one by one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage, refuse_frame, refusing
from usvit.data.io.dicom.byte_stream import MAX_BYTES, UNNAMED
from usvit.data.io.dicom.decode import FrameDecoder
from usvit.data.io.dicom.display import Display
from usvit.data.io.dicom.header import Header, read_header
from usvit.data.io.dicom.layout import layout_of
from usvit.data.io.dicom.metadata import DicomFacts, DicomIdentity, facts_of, identity_of
from usvit.data.io.grey_levels import ASSUMED_RANGE, DeepFrame, largest_value, to_8_bits, white_level
from usvit.data.io.types import UInt8


class DicomFile:
    """A DICOM file that holds an image. The header is parsed once; frames are read and decoded on demand.

    Close it, or use it in a ``with`` block. It is not thread-safe.

    Args:
        source: Path, bytes of the file, or the open file, which is closed together with this object.
        max_bytes: A file that has more bytes, or inflates to more, is refused with the code ``too_large``.
        name: Name of the file in errors, if the source is not a path.

    Raises:
        BadImage: No frame can be read; ``code`` gives the reason. The file is missing, not a DICOM file, damaged or
            truncated, it has no pixels, or its transfer syntax or colours are not supported.
    """

    def __init__(self, source: Path | bytes | BinaryIO, max_bytes: int = MAX_BYTES, name: Path = UNNAMED):
        self._path = source if isinstance(source, Path) else name
        with refusing(self._path):
            header = read_header(source, max_bytes, name)
            self._close = ExitStack()
            self._close.callback(header.source.close)
            try:
                self.facts: DicomFacts = facts_of(header)
                self.header = header.data
                layout = self._layout = layout_of(header)
                self._decoder = FrameDecoder(header, layout)
                self._close.callback(self._decoder.close)
                self._display = Display(header, layout)
            except BaseException:
                self._close.close()
                raise

    def frame(self, number: int = 0) -> UInt8:
        """Decode one frame. Other frames are not read, except earlier ones of a deflated file.

        MONOCHROME1 is inverted, the first window or lookup table of the frame is applied, palettes and YBR become RGB,
        and the range of values that the header states becomes 0 to 255. If it states none, ``grey_levels`` says which
        range is assumed.

        Args:
            number: Number of the frame, from 0.

        Returns:
            (H, W, 3) uint8, C-contiguous.

        Raises:
            BadImage: There is no such frame, or it is truncated or damaged.
        """
        with refusing(self._path):
            refuse_frame(self._path, number, self.facts.frames)
            values, colours = self._decoder.decode(number)
            if self._display.states_range(number) or self._white is None or not self._white[1]:
                picture = self._display(values, colours, number)
            else:
                picture = to_8_bits(self._deep(values), self._white[0])
                if picture.ndim == 2:
                    picture = np.repeat(picture[:, :, None], 3, axis=2)
            if picture.shape[2:] != (3,):
                raise BadImage(self._path, "its pixels cannot be decoded")
            return picture

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """``assumed_range``, if the header does not say which grey values of a frame are black and white."""
        with refusing(self._path):
            return (ASSUMED_RANGE,) if self._white is not None and self._white[1] else ()

    @cached_property
    def _white(self) -> tuple[float, bool] | None:
        """``white_level`` of the frames whose range the header does not state; None if there are none."""
        last, largest = None, 0.0
        for number in range(self.facts.frames):
            if not self._display.states_range(number):
                with suppress(BadImage):  # reported when this frame is read
                    last = self._deep(self._decoder.decode(number)[0])
                    largest = max(largest, largest_value(self._path, last))
        return None if last is None else white_level(self._path, last, largest)

    def _deep(self, values: NDArray[Any]) -> DeepFrame:
        layout = self._layout
        return DeepFrame(values, layout.bits_stored, white_is_zero=layout.colours == "MONOCHROME1")

    def close(self) -> None:
        self._close.close()

    def __enter__(self) -> "DicomFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_facts(source: Path | bytes, max_bytes: int = MAX_BYTES) -> DicomFacts:
    """Read the metadata of a DICOM file, which need not be an image.

    Args:
        source: Path or bytes of the file.
        max_bytes: A file that has more bytes, or inflates to more, is refused with the code ``too_large``.

    Raises:
        BadImage: The file is missing, damaged, or not a DICOM file.
    """
    with _closed_header(source, max_bytes) as header:
        return facts_of(header)


def read_dicom_identity(source: Path | bytes, max_bytes: int = MAX_BYTES) -> DicomIdentity:
    """Read which instance a DICOM file is, and what kind of image it says to be; the pixels are not read.

    Args:
        source: Path or bytes of the file.
        max_bytes: A file that has more bytes, or inflates to more, is refused with the code ``too_large``.

    Raises:
        BadImage: The file is missing, damaged, or not a DICOM file.
    """
    with _closed_header(source, max_bytes) as header:
        return identity_of(header)


def read_dicom_frame(source: Path | bytes, frame: int = 0) -> UInt8:
    """Open a file and decode one frame, as ``DicomFile.frame`` does.

    Returns:
        (H, W, 3) uint8.

    Raises:
        BadImage: The file or the frame cannot be decoded (``DicomFile``).
    """
    with DicomFile(source) as file:
        return file.frame(frame)


@contextmanager
def _closed_header(source: Path | bytes, max_bytes: int) -> Iterator[Header]:
    """Parse the header and close the file; errors in the block name the file as well."""
    with refusing(source if isinstance(source, Path) else UNNAMED):
        header = read_header(source, max_bytes)
        header.source.close()
        yield header
