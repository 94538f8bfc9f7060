"""Read the bytes of a DICOM file within limits, from a path or from memory, inflated for a deflated syntax.

A file may claim any size, so memory is never allocated because of a claim in a header. A header may take a limited
number of bytes and reads, and a deflated file is inflated only as far as it is read.
"""

import io
import zlib
from pathlib import Path
from typing import BinaryIO

from usvit.data.io.bad_image import BadImage
from usvit.files import open_regular

MAX_BYTES = 4_000_000_000
"""Default upper bound of the size of a file, packed or unpacked."""
_MAX_INFLATED = 1 << 30
"""Upper bound of the inflated bytes that are held in memory: some seconds of any cine loop."""
MAX_HEADER = 64 << 20
"""Upper bound of the bytes before the pixels. Headers have some kB; those of enhanced files some MB."""
_MAX_READS = 200_000
"""Upper bound of the reads while a header is parsed, two or three per element, which take some seconds. A file of empty
sequence items would take hours."""
_STEP = 1 << 20

UNNAMED = Path("DICOM file")
"""Name in errors of a file that was passed as bytes."""


class ByteStream:
    """A readable, seekable file of known size, whose reads can be limited.

    Args:
        path: Name of the file in errors.
        file: The open file.
        size: Size of the file in bytes.
    """

    def __init__(self, path: Path, file: BinaryIO, size: int):
        self.path = path
        self._file, self._size = file, size
        self._limited = False
        self._reads_left, self._bytes_left = _MAX_READS, MAX_HEADER

    def read(self, count: int = -1) -> bytes:
        if not self._limited:
            return self._file.read(count)
        left = self._size - self.tell()
        wanted = left if count < 0 else min(count, left)
        if self._reads_left == 0 or wanted > self._bytes_left:
            raise BadImage(self.path, "its header is far larger than an image's", "too_large")
        data = self._file.read(count)
        self._reads_left -= 1
        self._bytes_left -= len(data)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def limit_header(self) -> None:
        """Limit reads to what a header may take, until ``lift`` is called."""
        self._limited = True

    def lift(self) -> None:
        self._limited = False

    def holds(self, end: int) -> bool:
        """Return whether the file has at least ``end`` bytes."""
        return end <= self._size

    def close(self) -> None:
        self._file.close()


class Inflated(ByteStream):
    """The part of a deflated file after its meta header (PS3.5 A.5), inflated as far as it is read.

    Args:
        packed: File at the first byte of the deflate stream.
        max_bytes: Upper bound of the inflated bytes; more raise ``BadImage`` with the code ``too_large``.
    """

    def __init__(self, packed: ByteStream, max_bytes: int):
        self.path = packed.path
        self._packed, self._most = packed, min(max_bytes, _MAX_INFLATED)
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._data = bytearray()
        self._place = 0
        self._limited = True
        self._reads_left = _MAX_READS

    def read(self, count: int = -1) -> bytes:
        if self._limited:
            self._reads_left -= 1
            if self._reads_left < 0:
                raise BadImage(self.path, "its header is far larger than an image's", "too_large")
        end = self._place + count if count >= 0 else self._most + 1
        self._inflate(end)
        data = bytes(memoryview(self._data)[self._place : end])
        self._place += len(data)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        if whence == 2:
            raise io.UnsupportedOperation("the size of a deflated file is unknown")
        self._place = max(0, place + (self._place if whence else 0))
        return self._place

    def tell(self) -> int:
        return self._place

    def holds(self, end: int) -> bool:
        self._inflate(end)
        return end <= len(self._data)

    def close(self) -> None:
        self._packed.close()
        self._data = bytearray()

    def _inflate(self, end: int) -> None:
        most = MAX_HEADER if self._limited else self._most
        while len(self._data) < end and not self._inflater.eof:
            packed = self._inflater.unconsumed_tail or self._packed.read(_STEP)
            try:
                more = self._inflater.decompress(packed, _STEP)
            except zlib.error as error:
                raise BadImage(self.path, "its deflated data are damaged") from error
            if not packed and not more and not self._inflater.eof:
                raise BadImage(self.path, "its deflated data end too early", "truncated")
            self._data += more
            if len(self._data) > most:
                raise BadImage(self.path, "it inflates to far more than an image needs (a bomb?)", "too_large")


def open_source(source: Path | bytes | BinaryIO, max_bytes: int, name: Path = UNNAMED) -> ByteStream:
    """Open a DICOM file.

    Args:
        source: Path, bytes of the file, or the open file, which is closed together with the returned one.
        max_bytes: Upper bound of the size in bytes.
        name: Name of the file in errors, if the source is not a path.

    Raises:
        BadImage: The file is ``too_large`` or ``empty``.
        OSError: The file cannot be opened.
    """
    file: BinaryIO
    if isinstance(source, Path):
        path, file = source, open_regular(source)
    else:
        path, file = name, io.BytesIO(source) if isinstance(source, bytes) else source
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    opened = ByteStream(path, file, size)
    if not 0 < size <= max_bytes:
        opened.close()
        if not size:
            raise BadImage(path, "it is empty", "empty")
        raise BadImage(path, f"it has more than {max_bytes} bytes", "too_large")
    return opened
