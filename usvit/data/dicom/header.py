"""The header of a DICOM file, parsed once and within limits, and the place where its pixels begin."""

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

from usvit.data.dicom.source import UNNAMED, Inflated, Source, open_source
from usvit.data.images import HEAD_BYTES, BadImage, kind_of

# Of odd values that do not matter here; set once for all, as files are decoded in threads, which share the filters.
warnings.filterwarnings("ignore", module=r"pydicom(\.|$)")
logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)  # it quotes what the file says

_PIXELS = {0x7FE00008: "FloatPixelData", 0x7FE00009: "DoubleFloatPixelData", 0x7FE00010: "PixelData"}
_UNDEFINED = 0xFFFFFFFF
_LITTLE = (uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian)
_LARGEST_VALUE = 1 << 20
"""Bytes; a larger element before the pixels is nothing that is needed here, and is passed over."""


@dataclass(frozen=True)
class PixelElement:
    """Where the pixels lie."""

    keyword: str
    vr: str
    start: int
    """Of the value in the source."""
    length: int | None
    """Of the value, as the element says; None: undefined, a sequence of fragments."""


@dataclass(frozen=True)
class Header:
    """What stands before the pixels."""

    path: Path
    data: pydicom.Dataset
    meta: pydicom.Dataset
    """Of group 0002; empty where there is none."""
    syntax: uid.UID | None
    """None: the file names none, and none can be inferred."""
    pixels: PixelElement | None
    source: Source
    """Open, at any place."""

    @property
    def kind(self) -> str:
        """The standard's name of its kind of file; never the file's own words."""
        known = self.data.get("SOPClassUID") or self.meta.get("MediaStorageSOPClassUID")
        name = getattr(known, "name", None)
        return "a DICOM file of no known kind" if name is None or name == known else str(name)


def read_header(source: Path | bytes | BinaryIO, max_bytes: int, name: Path = UNNAMED) -> Header:
    """Parse a file up to its pixels.

    Files without the preamble of 128 bytes, which some archives export, are read where their first element is one
    that a data set begins with.

    Raises:
        BadImage: it is no DICOM file, damaged, cut off within its header, or too large.
        OSError: it cannot be opened or read.
    """
    opened = open_source(source, max_bytes, name)
    try:
        return _parsed(opened, max_bytes)
    except BaseException:
        opened.close()
        raise


def number(data: pydicom.Dataset, keyword: str) -> float | None:
    """The first value of an element as a number; None where it is absent, empty or no number."""
    value = first(data, keyword)
    try:
        return None if value is None or value == "" else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def required_number(header: "Header", keyword: str, data: pydicom.Dataset | None = None) -> float | None:
    """The first value of an element that pixels depend on; None where it is absent or empty.

    Raises:
        BadImage: it is there, but is no finite number.
    """
    data = header.data if data is None else data
    value = number(data, keyword)
    if value is None and first(data, keyword) in (None, "") and not unreadable(data, keyword):
        return None
    if value is None or not math.isfinite(value):
        raise BadImage(header.path, f"its header has no usable {keyword}")
    return value


def unreadable(data: pydicom.Dataset, keyword: str) -> bool:
    """Whether an element is there with a value that is none of its kind."""
    try:
        data.get(keyword)
    except Exception:  # as in first()
        return True
    return False


def first(data: pydicom.Dataset, keyword: str) -> Any:
    """The first value of an element, or None where it is absent or cannot be read."""
    try:
        value = data.get(keyword)
    except Exception:  # pydicom converts values when they are asked for, and has many ways to fail
        return None
    if isinstance(value, MultiValue | list | tuple):
        return value[0] if len(value) else None
    return value


def items(data: pydicom.Dataset, keyword: str) -> list[pydicom.Dataset]:
    """The items of a sequence; none where it is absent or cannot be read."""
    try:
        value = data.get(keyword)
        return [item for item in value or [] if isinstance(item, pydicom.Dataset)]
    except Exception:  # as in first()
        return []


def text(data: pydicom.Dataset, keyword: str) -> str:
    """An element as text, without the spaces around it; "" where it is absent or cannot be read."""
    try:
        return str(data.get(keyword) or "").strip()
    except Exception:  # as in first()
        return ""


class _Progress:
    """Called by pydicom at each element of the top level, before its value: notes the last, and stops at the pixels."""

    def __init__(self, source: Source):
        self.pixels: PixelElement | None = None
        self._source = source
        self._end: int | None = -1
        """Where the last element ends, as far as it says so; -1: none came."""

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

    def ended_well(self) -> None:
        """Raise ``BadImage`` where no pixels came and yet something is left: pydicom takes that for an end."""
        place = self._source.tell()
        if self.pixels is None and (self._end not in (None, place) or self._source.holds(place + 1)):
            raise BadImage(self._source.path, "its header is damaged, or ends too early", "truncated")


def _parsed(opened: Source, max_bytes: int) -> Header:
    head = opened.read(HEAD_BYTES)
    if kind_of(head) != "dicom":
        raise BadImage(opened.path, "it is not a DICOM file (no 'DICM' at byte 128)", "not_an_image")
    opened.limit_header()
    opened.seek(132 if head[128:132] == b"DICM" else 0)
    meta = _elements(opened, explicit=True, little=True, stop_when=lambda tag, *_: int(tag) >> 16 != 2)
    syntax = _syntax(meta)
    source: Source = opened
    explicit, little = syntax != uid.ImplicitVRLittleEndian, syntax != uid.ExplicitVRBigEndian
    if syntax == uid.DeflatedExplicitVRLittleEndian:
        opened.lift()
        source = Inflated(opened, max_bytes)
    elif syntax is None:
        explicit, little = _guessed(opened)
    progress = _Progress(source)
    data = _elements(source, explicit, little, progress)
    progress.ended_well()
    source.lift()
    if syntax is None and progress.pixels and progress.pixels.length is not None:
        explicit = not data.original_encoding[0]
        syntax = uid.ExplicitVRBigEndian if not little else _LITTLE[explicit]
    return Header(opened.path, data, meta, syntax, progress.pixels, source)


def _elements(source: Source, explicit: bool, little: bool, stop_when: Callable[..., bool]) -> pydicom.Dataset:
    """pydicom's parser; what it says when the bytes make no sense becomes a ``BadImage``."""
    try:
        file = cast(BinaryIO, source)
        data = read_dataset(file, not explicit, little, stop_when=stop_when, defer_size=_LARGEST_VALUE)
    except (BadImage, OSError) as error:
        if isinstance(error, BadImage) or error.errno is not None:
            raise
        raise BadImage(source.path, "it ends within its header", "truncated") from error  # a sequence without its end
    except Exception as error:
        raise BadImage(source.path, f"its header is damaged ({type(error).__name__})") from error
    for element in list(data.values()):
        if isinstance(element, RawDataElement) and element.value is None and element.length:
            del data[element.tag]  # passed over: larger than _LARGEST_VALUE
    return data


def _syntax(meta: pydicom.Dataset) -> uid.UID | None:
    named = first(meta, "TransferSyntaxUID")
    return uid.UID(str(named)) if named else None


def _guessed(source: Source) -> tuple[bool, bool]:
    """Whether a data set of unnamed transfer syntax has explicit types, and is little endian, by its first element."""
    place = source.tell()
    start = source.read(6)
    source.seek(place)
    if len(start) < 6:
        return False, True
    little = struct.unpack("<H", start[:2])[0] < 0x0400  # else group 0008 seen from the wrong end
    return start[4:6].isalpha() and start[4:6].isupper(), little
