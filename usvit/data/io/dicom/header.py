"""Parse the header of a DICOM file once and within limits, and find where its pixels begin."""

import logging
import math
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pydicom
from pydicom import uid
from pydicom.dataelem import RawDataElement
from pydicom.filereader import read_dataset
from pydicom.multival import MultiValue
from pydicom.tag import BaseTag

from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom.byte_stream import UNNAMED, ByteStream, Inflated, open_source
from usvit.data.io.sniffing import HEAD_BYTES, kind_of

# pydicom warns of odd values that do not matter here. The filter is set once because all decoding threads share it.
warnings.filterwarnings("ignore", module=r"pydicom(\.|$)")
logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)  # its messages quote the file

_PIXELS = {0x7FE00008: "FloatPixelData", 0x7FE00009: "DoubleFloatPixelData", 0x7FE00010: "PixelData"}
_UNDEFINED = 0xFFFFFFFF
_LITTLE = (uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian)
_LARGEST_VALUE = 1 << 20
"""Bytes; larger elements before the pixels are not needed here, and are skipped."""


@dataclass(frozen=True)
class PixelElement:
    """Place of the pixels in a file."""

    keyword: str
    vr: str
    start: int
    """Offset of the value in the source."""
    length: int | None
    """Length of the value in bytes; None if it is undefined, as for a sequence of fragments."""


@dataclass(frozen=True)
class Header:
    """The parsed header of an open DICOM file."""

    path: Path
    data: pydicom.Dataset
    meta: pydicom.Dataset
    """Elements of group 0002; empty if there are none."""
    syntax: uid.UID | None
    """Transfer syntax; None if the file names none and none can be inferred."""
    pixels: PixelElement | None
    source: ByteStream
    """The open file, at any position."""

    @property
    def kind(self) -> str:
        """The standard's name of the kind of file, which never quotes the file."""
        known = self.data.get("SOPClassUID") or self.meta.get("MediaStorageSOPClassUID")
        name = getattr(known, "name", None)
        return "a DICOM file of no known kind" if name is None or name == known else str(name)


def read_header(source: Path | bytes | BinaryIO, max_bytes: int, name: Path = UNNAMED) -> Header:
    """Parse a file up to its pixels.

    Files without the preamble of 128 bytes, as some archives export them, are read if their first element can begin a
    data set.

    Raises:
        BadImage: The file is not a DICOM file, is damaged or too large, or ends within its header.
        OSError: The file cannot be opened or read.
    """
    opened = open_source(source, max_bytes, name)
    try:
        return _parsed(opened, max_bytes)
    except BaseException:
        opened.close()
        raise


def number(data: pydicom.Dataset, keyword: str) -> float | None:
    """Return the first value of an element as a number; None if it is absent, empty or not a number."""
    value = first(data, keyword)
    try:
        return None if value is None or value == "" else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def required_number(header: "Header", keyword: str, data: pydicom.Dataset | None = None) -> float | None:
    """Return the first value of an element that the pixels depend on; None if it is absent or empty.

    Raises:
        BadImage: The value is not a finite number.
    """
    data = header.data if data is None else data
    value = number(data, keyword)
    if value is None and first(data, keyword) in (None, "") and not unreadable(data, keyword):
        return None
    if value is None or not math.isfinite(value):
        raise BadImage(header.path, f"its header has no usable {keyword}")
    return value


def unreadable(data: pydicom.Dataset, keyword: str) -> bool:
    """Return whether an element exists but its value is invalid for its type."""
    try:
        data.get(keyword)
    except Exception:  # as in first()
        return True
    return False


def first(data: pydicom.Dataset, keyword: str) -> Any:
    """Return the first value of an element; None if it is absent or cannot be read."""
    try:
        value = data.get(keyword)
    except Exception:  # pydicom converts values on access, and raises many types of exceptions
        return None
    if isinstance(value, MultiValue | list | tuple):
        return value[0] if len(value) else None
    return value


def items(data: pydicom.Dataset, keyword: str) -> list[pydicom.Dataset]:
    """Return the items of a sequence; none if it is absent or cannot be read."""
    try:
        value = data.get(keyword)
        return [item for item in value or [] if isinstance(item, pydicom.Dataset)]
    except Exception:  # as in first()
        return []


def text(data: pydicom.Dataset, keyword: str) -> str:
    """Return an element as text, stripped of spaces; "" if it is absent or cannot be read."""
    try:
        return str(data.get(keyword) or "").strip()
    except Exception:  # as in first()
        return ""


class _ElementWatcher:
    """Callback for pydicom before the value of each top-level element: records its end, and stops at the pixels."""

    def __init__(self, source: ByteStream):
        self.pixels: PixelElement | None = None
        self._source = source
        self._end: int | None = -1
        """End of the last element; None if it is undefined, -1 before the first element."""

    def __call__(self, tag: BaseTag, vr: str | None, length: int) -> bool:
        start = self._source.tell()
        if keyword := _PIXELS.get(int(tag)):
            defined = None if length == _UNDEFINED else length
            self.pixels = PixelElement(keyword, vr or "OW", start, defined)
            return True
        if length != _UNDEFINED and not self._source.holds(start + length):
            raise BadImage(self._source.path, "it ends within its header", "truncated")
        self._end = None if length == _UNDEFINED else start + length
        return False

    def check_end(self) -> None:
        """Raise ``BadImage`` if bytes remain although no pixels were found; pydicom treats that as the end."""
        place = self._source.tell()
        if self.pixels is None and (self._end not in (None, place) or self._source.holds(place + 1)):
            raise BadImage(self._source.path, "its header is damaged, or ends too early", "truncated")


def _parsed(opened: ByteStream, max_bytes: int) -> Header:
    head = opened.read(HEAD_BYTES)
    if kind_of(head) != "dicom":
        raise BadImage(opened.path, "it is not a DICOM file (no 'DICM' at byte 128)", "not_an_image")
    opened.limit_header()
    opened.seek(132 if head[128:132] == b"DICM" else 0)
    meta = _elements(opened, explicit=True, little=True, stop_when=lambda tag, *_: int(tag) >> 16 != 2)
    syntax = _syntax(meta)
    source: ByteStream = opened
    explicit, little = syntax != uid.ImplicitVRLittleEndian, syntax != uid.ExplicitVRBigEndian
    if syntax == uid.DeflatedExplicitVRLittleEndian:
        opened.lift()
        source = Inflated(opened, max_bytes)
    elif syntax is None:
        explicit, little = _guessed(opened)
    watcher = _ElementWatcher(source)
    data = _elements(source, explicit, little, watcher)
    watcher.check_end()
    source.lift()
    if syntax is None and watcher.pixels and watcher.pixels.length is not None:
        explicit = not data.original_encoding[0]
        syntax = uid.ExplicitVRBigEndian if not little else _LITTLE[explicit]
    return Header(opened.path, data, meta, syntax, watcher.pixels, source)


def _elements(source: ByteStream, explicit: bool, little: bool, stop_when: Callable[..., bool]) -> pydicom.Dataset:
    """Parse elements with pydicom, and turn its errors into ``BadImage``."""
    try:
        file = cast(BinaryIO, source)
        data = read_dataset(file, not explicit, little, stop_when=stop_when, defer_size=_LARGEST_VALUE)
    except (BadImage, OSError) as error:
        if isinstance(error, BadImage) or error.errno is not None:
            raise
        raise BadImage(source.path, "it ends within its header", "truncated") from error  # a sequence is not complete
    except Exception as error:
        raise BadImage(source.path, f"its header is damaged ({type(error).__name__})") from error
    for element in list(data.values()):
        if isinstance(element, RawDataElement) and element.value is None and element.length:
            del data[element.tag]  # skipped: larger than _LARGEST_VALUE
    return data


def _syntax(meta: pydicom.Dataset) -> uid.UID | None:
    named = first(meta, "TransferSyntaxUID")
    return uid.UID(str(named)) if named else None


def _guessed(source: ByteStream) -> tuple[bool, bool]:
    """Guess by the first element whether a data set has explicit types, and whether it is little endian."""
    place = source.tell()
    start = source.read(6)
    source.seek(place)
    if len(start) < 6:
        return False, True
    little = struct.unpack("<H", start[:2])[0] < 0x0400  # otherwise group 0008 in big endian
    return start[4:6].isalpha() and start[4:6].isupper(), little
