"""A DICOM file as its readers see it: opened once, its facts, and its frames one by one."""

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from usvit.data.dicom.decode import Decoder
from usvit.data.dicom.display import Display
from usvit.data.dicom.facts import DicomFacts, facts_of
from usvit.data.dicom.header import read_header
from usvit.data.dicom.layout import layout_of
from usvit.data.dicom.source import MAX_BYTES, UNNAMED
from usvit.data.images import BadImage, UInt8, refuse_frame, refusing


class DicomFile:
    """One DICOM file that holds an image. The header is parsed once; a frame is read and decoded when it is asked for.

    Close it, or use it in a ``with`` block. One thread at a time.

    Args:
        source: a path, the file's bytes, or the open file (which is closed with this one).
        max_bytes: a file that has more, or inflates to more, is refused as ``too_large``.
        name: what errors call it, where the source is no path.

    Raises:
        BadImage: no frame of it can be read, for the reason that ``code`` gives: it is missing, no DICOM file, damaged
            or truncated; it has no pixels; its transfer syntax or colours are not supported.
    """

    def __init__(self, source: Path | bytes | BinaryIO, max_bytes: int = MAX_BYTES, name: Path = UNNAMED):
        self._path = source if isinstance(source, Path) else name
        with refusing(self._path):
            header = read_header(source, max_bytes, name)
            self._source = header.source
            try:
                self.facts: DicomFacts = facts_of(header)
                self.header = header.data
                layout = layout_of(header)
                self._decoder = Decoder(header, layout)
                self._display = Display(header, layout)
            except BaseException:
                header.source.close()
                raise

    def frame(self, number: int = 0) -> UInt8:
        """Decode one whole frame; the others are neither decoded nor read (but for a deflated file's earlier ones).

        MONOCHROME1 is inverted, a window or lookup table of the file is applied (the first, where there are several),
        palettes and YBR become RGB, and the range that the header states for its values becomes 0 to 255.

        Args:
            number: from 0.

        Returns:
            (H, W, 3) uint8, C-contiguous.

        Raises:
            BadImage: there is no such frame, or it is truncated or damaged.
        """
        with refusing(self._path):
            refuse_frame(self._path, number, self.facts.frames)
            picture = self._display(*self._decoder.decode(number))
            if picture.shape[2:] != (3,):
                raise BadImage(self._path, "its pixels cannot be decoded")
            return picture

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> "DicomFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_facts(source: Path | bytes, max_bytes: int = MAX_BYTES) -> DicomFacts:
    """Read a header, of an image or not; no pixels.

    Raises:
        BadImage: the file is missing, damaged, or no DICOM file.
    """
    path = source if isinstance(source, Path) else UNNAMED
    with refusing(path):
        header = read_header(source, max_bytes)
        header.source.close()
        return facts_of(header)


def read_dicom_frame(source: Path | bytes, frame: int = 0) -> UInt8:
    """Decode one frame of a file: ``DicomFile.frame``, for who wants only one.

    Returns:
        (H, W, 3) uint8.

    Raises:
        BadImage: as ``DicomFile`` and ``DicomFile.frame``.
    """
    with DicomFile(source) as file:
        return file.frame(frame)
