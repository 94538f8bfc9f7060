"""Read, check and expand lookup tables of a DICOM header (PS3.3 C.11.1.1, C.11.2.1.1, C.7.6.3.1.5, C.7.9)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pydicom
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom.header import Header

_MOST_ENTRIES = 65536


@dataclass(frozen=True)
class _Lookup:
    """A table that maps stored values to other values."""

    first: int
    """Stored value of the first entry. Smaller values get the first entry, and values beyond the last entry get it."""
    bits: int
    """Bits of an entry."""
    entries: NDArray[np.uint16]

    def __call__(self, values: NDArray[Any]) -> NDArray[np.uint16]:
        places = np.clip(np.rint(values) - self.first, 0, len(self.entries) - 1)
        return self.entries[places.astype(np.int64)]


def read_lookup(header: Header, data: pydicom.Dataset, descriptor: str, table: str, segmented: str = "") -> _Lookup:
    """Read a lookup table.

    Args:
        header: Header of the file, for errors and the byte order.
        data: Data set or item that holds the elements.
        descriptor: Keyword of the descriptor: number of entries, first value mapped, bits of an entry.
        table: Keyword of the entries.
        segmented: Keyword of the entries in segments, if ``table`` is absent. Discrete and linear segments are
            supported; references to earlier segments are refused.

    Raises:
        BadImage: An element is missing, or the elements contradict each other.
    """
    try:
        count, first, bits = (int(value) for value in data[descriptor].value)
        count = count or _MOST_ENTRIES  # 65536 does not fit into the descriptor
        if not 0 < count <= _MOST_ENTRIES or not 8 <= bits <= 16:
            raise ValueError
        if header.data.get("PixelRepresentation") == 1 and first > 32767:
            first -= 65536  # a signed number in an unsigned element
        if table in data:
            entries = _unpacked(header, data[table].value, bits, count)[:count]
        else:
            segments = data[segmented].value
            entries = _expanded(_unpacked(header, segments, bits, len(segments)), count)
        if len(entries) < count:
            raise ValueError
    except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
        raise BadImage(header.path, "a lookup table in its header is damaged") from error
    return _Lookup(first, bits, entries)


def _unpacked(header: Header, raw: Any, bits: int, count: int) -> NDArray[np.uint16]:
    """Return entries as numbers. They are words, or two bytes per word if 8-bit data are too short for words."""
    if not isinstance(raw, bytes):
        return np.asarray(raw, dtype=np.int64).astype(np.uint16).reshape(-1)
    order = ">" if header.data.original_encoding[1] is False else "<"
    words = np.frombuffer(raw + b"\0" * (len(raw) % 2), f"{order}u2").astype("<u2")
    if bits == 8 and len(raw) <= count + 1:
        return words.view(np.uint8).astype(np.uint16)  # the lower byte is the earlier entry, in any byte order
    return words.astype(np.uint16)


def _expanded(segments: NDArray[np.uint16], count: int) -> NDArray[np.uint16]:
    """Expand a segmented table (PS3.3 C.7.9.2)."""
    parts = [np.zeros(0, np.uint16)]
    place = made = 0
    while made < count:
        kind, length = int(segments[place]), int(segments[place + 1])
        if kind == 0 and length:
            parts.append(segments[place + 2 : place + 2 + length])
            place += 2 + length
        elif kind == 1 and made and length:
            line = np.linspace(parts[-1][-1], segments[place + 2], length + 1)
            parts.append(np.rint(line[1:]).astype(np.uint16))
            place += 3
        else:
            raise ValueError("a segment of unknown kind")
        made += len(parts[-1])
    return np.concatenate(parts)[:count]
