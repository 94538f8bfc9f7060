"""Read the layout of the pages of a TIFF file, and decode the pages that Pillow does not decode correctly.

Pillow ignores that white is zero at 16 bits, wraps signed bytes, swaps the bytes of compressed 32-bit values in big
endian and mixes planes of 16 bits. OpenCV therefore decodes values of more than 8 bits, which was tried for every
layout that is accepted here (``tests/data/io/test_reference_pictures.py``); Pillow decodes all others.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage, refuse_size
from usvit.data.io.grey_levels import DeepFrame

_MAX_PAGES = 100_000
_MAX_ENTRIES = 1000
"""Entries of a directory; a page has about 20."""
_MAX_VALUES = 768
"""Values of an entry that are read; a colour map of 8 bits has as many."""
_SIZES = {1: "B", 3: "H", 4: "I", 16: "Q"}
_TAGS = (254, 256, 257, 258, 262, 277, 284, 320, 339)
_KIND, _WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _SAMPLES, _PLANAR, _COLOURS, _FORMAT = _TAGS
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _LAB = 0, 1, 2, 3, 8
_SIGNED, _FLOATING = 2, 3
_DEPTHS = {1: (10, 12, 14, 16, 32), _SIGNED: (8, 16, 32), _FLOATING: (32, 64)}
"""Sample format -> bits of grey values that OpenCV decodes."""


@dataclass(frozen=True)
class _TiffPage:
    """Layout of one page."""

    number: int
    """Number of its directory in the file, from 0."""
    width: int
    height: int
    bits: int
    samples: int
    photometric: int
    sample_format: int
    """1 unsigned, 2 signed, 3 floating point."""
    planar: int
    colours: tuple[int, ...]
    """The colour map: all reds, then all greens, then all blues."""
    is_picture: bool
    """False for a reduced copy of another page, and for a transparency mask."""

    @property
    def is_deep(self) -> bool:
        """True if Pillow would not decode it correctly, or not at all."""
        return self.bits > 8 or self.sample_format != 1 or self.photometric == _LAB

    def palette(self) -> bytes | None:
        """Return a palette of bytes if the colour map has bytes in place of words, as some writers leave it."""
        if self.photometric != _PALETTE or not self.colours or max(self.colours) > 255:
            return None
        count = len(self.colours) // 3
        return bytes(self.colours[level + part * count] for level in range(count) for part in range(3))


def read_pages(path: Path, file: BinaryIO) -> list[_TiffPage]:
    """Read the layout of all pages that are pictures.

    Args:
        path: The file, for errors.
        file: The open file, at any position.

    Raises:
        BadImage: The directories are truncated or damaged.
    """
    try:
        pages = _pages(path, file)
    except (struct.error, IndexError, OverflowError) as error:
        raise BadImage(path, "it is damaged or truncated (its header)", "truncated") from error
    if not pages:
        raise BadImage(path, "it is damaged or truncated (it has no page)")
    return [page for page in pages if page.is_picture] or pages


def decode_page(path: Path, data: bytes | NDArray[np.uint8], page: _TiffPage) -> DeepFrame:
    """Decode a page that ``is_deep``; the orientation is applied.

    Args:
        path: The file, for errors.
        data: The whole file.
        page: The page.

    Raises:
        BadImage: The page is larger than ``MAX_PIXELS``, truncated or damaged, or has an unsupported layout.
    """
    refuse_size(path, page.height, page.width)
    grey = page.photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO) and page.samples == 1
    colour = page.photometric == _RGB and page.samples in (3, 4) and page.planar == 1 and page.sample_format == 1
    if not (colour and page.bits == 16) and not (grey and page.bits in _DEPTHS.get(page.sample_format, ())):
        raise unsupported(path, page)
    buffer = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    values = _by_opencv(path, page, buffer)
    packed = page.bits in (10, 12, 14)
    kind = {1: "u", _SIGNED: "i", _FLOATING: "f"}[page.sample_format]
    if values.dtype != np.dtype(f"{kind}{2 if packed else page.bits // 8}"):
        raise unsupported(path, page)
    if packed:
        values = values >> (16 - page.bits)  # OpenCV fills 16 bits from the top
    stated = 2**page.bits - 1 if packed else None
    return DeepFrame(values, page.bits, stated, page.photometric == _WHITE_IS_ZERO)


def unsupported(path: Path, page: _TiffPage) -> BadImage:
    """Return the error for a page whose layout is not supported."""
    kind = {_SIGNED: " signed", _FLOATING: " floating-point"}.get(page.sample_format, "")
    reason = f"its{kind} pixels of {page.samples} x {page.bits} bits (photometric {page.photometric}) are not supported"
    return BadImage(path, f"{reason}; save it with 8 bits, grey or RGB", "unsupported_pixels")


def _by_opencv(path: Path, page: _TiffPage, buffer: NDArray[np.uint8]) -> NDArray[Any]:
    try:
        if page.number == 0:
            found = cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED)
        else:
            pages = cv2.imdecodemulti(buffer, cv2.IMREAD_UNCHANGED, range=(page.number, page.number + 1))[1]
            found = pages[0] if len(pages) == 1 else None
    except cv2.error as error:
        raise BadImage(path, "it is damaged or truncated (its pixels)") from error
    if found is None or sorted(found.shape[:2]) != sorted((page.height, page.width)):
        raise BadImage(path, "it is damaged or truncated (its pixels)")
    values: NDArray[Any] = np.asarray(found)
    return values if page.samples == 1 else np.ascontiguousarray(values[..., 2::-1])  # from BGR or BGRA


def _pages(path: Path, file: BinaryIO) -> list[_TiffPage]:
    file.seek(0)
    head = file.read(16)
    order = "<" if head[:2] == b"II" else ">"
    big = struct.unpack_from(f"{order}H", head, 2)[0] == 43
    (place,) = struct.unpack_from(f"{order}Q" if big else f"{order}I", head, 8 if big else 4)
    pages: list[_TiffPage] = []
    seen: set[int] = set()
    while place:
        if place in seen:  # some writers let the last page refer to the first one
            break
        if len(pages) >= _MAX_PAGES:
            raise BadImage(path, f"it has more than {_MAX_PAGES:,} pages", "too_large")
        seen.add(place)
        entries, place = _directory(path, file, place, order, big)
        pages.append(_page(len(pages), entries))
    return pages


def _directory(path: Path, file: BinaryIO, place: int, order: str, big: bool) -> tuple[dict[int, tuple[int, ...]], int]:
    """Return the values of the entries that ``_page`` needs, and the place of the next directory."""
    number, offset, size = ("Q", "Q", 20) if big else ("H", "I", 12)
    file.seek(place)
    (count,) = struct.unpack(order + number, file.read(struct.calcsize(number)))
    if count > _MAX_ENTRIES:
        raise BadImage(path, "it is damaged or truncated (its header)")
    table = file.read(count * size + struct.calcsize(offset))
    found = {}
    for at in range(0, count * size, size):
        tag, kind, length = struct.unpack_from(f"{order}HH{offset}", table, at)
        if kind not in _SIZES or tag not in _TAGS:
            continue
        length = min(length, _MAX_VALUES)
        layout = f"{order}{length}{_SIZES[kind]}"
        room, start = struct.calcsize(offset), at + size - struct.calcsize(offset)
        if struct.calcsize(layout) <= room:
            found[tag] = struct.unpack_from(layout, table, start)
        else:
            file.seek(struct.unpack_from(order + offset, table, start)[0])
            found[tag] = struct.unpack(layout, file.read(struct.calcsize(layout)))
    (following,) = struct.unpack_from(order + offset, table, count * size)
    return found, following


def _page(number: int, entries: dict[int, tuple[int, ...]]) -> _TiffPage:
    def first(tag: int, default: int) -> int:
        return (entries.get(tag) or (default,))[0]

    bits = set(entries.get(_BITS) or (1,))
    formats = set(entries.get(_FORMAT) or (1,))
    return _TiffPage(
        number=number,
        width=first(_WIDTH, 0),
        height=first(_HEIGHT, 0),
        bits=max(bits),
        samples=first(_SAMPLES, 1),
        photometric=first(_PHOTOMETRIC, _WHITE_IS_ZERO),
        sample_format=max(formats),
        planar=first(_PLANAR, 1),
        colours=entries.get(_COLOURS, ()),
        is_picture=not first(_KIND, 0) & 0b101,
    )
