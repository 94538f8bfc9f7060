"""Read the header of a compressed frame before it is decoded.

A decoder allocates the size that the codestream claims, not the size that the DICOM header claims, so both are compared
first.
"""

import struct
from dataclasses import dataclass

_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}
_STARTS_OF_FRAME = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}
END = b"\xff\xd9"
"""End of image of JPEG and JPEG-LS, end of codestream of JPEG 2000."""


@dataclass(frozen=True)
class Codestream:
    """The start of frame of a JPEG or JPEG-LS image, or the SIZ segment of a JPEG 2000 image."""

    process: int
    """Low byte of the marker: 0xC0 baseline, C1 extended, C2 progressive, C3 lossless, F7 JPEG-LS; 0x51 JPEG 2000."""
    precision: int
    """Bits per value."""
    rows: int
    columns: int
    component_ids: tuple[int, ...]
    """One id per colour; for JPEG 2000 these are 0, 1, 2."""
    jfif: bool = False
    adobe: int | None = None
    """The transform byte of Adobe's APP14 segment: 0 for none, 1 for YCbCr, 2 for YCCK."""
    complete: bool = True
    """True if the codestream ends with its end marker, possibly followed by padding."""

    @property
    def names_rgb(self) -> bool:
        """True if the components are named R, G, B."""
        return self.component_ids in ((82, 71, 66), (114, 103, 98))


def read_codestream(data: bytes) -> Codestream | None:
    """Read the header of a codestream; return None if it is damaged or of another kind.

    Sources: ITU-T T.81 B.2.2 (JPEG), T.87 C.2.2 (JPEG-LS), T.800 A.5.1 (JPEG 2000), T.871 (JFIF).
    """
    try:
        if data[:2] == b"\xff\xd8":
            return _jpeg(data)
        return _jpeg2000(data)
    except (IndexError, struct.error):
        return None


def bare_jpeg(data: bytes) -> bytes | None:
    """Remove the segments of a JPEG that decoding does not need (APPn, comments).

    It is used for a decoder that crashes on unexpected content there.

    Returns:
        The remaining JPEG; None if its segments contradict each other.
    """
    kept, place, started = [data[:2]], 2, False
    try:
        while True:
            if data[place] != 0xFF:
                return None
            marker = data[place + 1]
            if marker == 0xFF:
                place += 1
                continue
            (length,) = struct.unpack_from(">H", data, place + 2)
            end = place + 2 + length
            segment = data[place + 4 : end]
            if marker in _WITHOUT_LENGTH or len(segment) != length - 2:
                return None
            if marker in _STARTS_OF_FRAME:
                if started or any(
                    byte & 0xF not in range(1, 5) or byte >> 4 not in range(1, 5) for byte in segment[7::3]
                ):
                    return None
                started = True
            if marker == 0xDA:
                kept.append(data[place:])
                return b"".join(kept) if started and _is_scan(segment) else None
            if marker not in range(0xE0, 0xF0) and marker != 0xFE:
                kept.append(data[place:end])
            place = end
    except (IndexError, struct.error):
        return None


def _is_scan(segment: bytes) -> bool:
    """Return whether a scan header (T.81 B.2.3) has the stated length and refers to valid tables."""
    count = segment[0]
    return 1 <= count <= 4 and len(segment) == 4 + 2 * count and not any(byte & 0xCC for byte in segment[2:-3:2])


def _jpeg(data: bytes) -> Codestream | None:
    place, jfif, adobe = 2, False, None
    while True:
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker == 0xFF:  # a fill byte
            place += 1
            continue
        if marker in _WITHOUT_LENGTH:
            place += 2
            continue
        (length,) = struct.unpack_from(">H", data, place + 2)
        segment = data[place + 4 : place + 2 + length]
        if marker in _STARTS_OF_FRAME:
            precision, rows, columns, count = struct.unpack_from(">BHHB", segment)
            ids = tuple(segment[6 + 3 * number] for number in range(count))
            return Codestream(marker, precision, rows, columns, ids, jfif, adobe, _is_complete(data))
        if marker == 0xDA or length < 2:
            return None
        jfif |= marker == 0xE0 and segment[:4] == b"JFIF"
        if marker == 0xEE and segment[:5] == b"Adobe" and len(segment) >= 12:
            adobe = segment[11]
        place += 2 + length


def _jpeg2000(data: bytes) -> Codestream | None:
    start = data.find(b"\xff\x4f\xff\x51", 0, 4096)  # at 0, or after the boxes of a JP2 file that some writers add
    if start < 0:
        return None
    right, bottom, left, top = struct.unpack_from(">4I", data, start + 8)
    (count,) = struct.unpack_from(">H", data, start + 40)
    depths = data[start + 42 : start + 42 + 3 * count : 3]
    if not 1 <= count <= 4 or len(depths) < count:
        return None
    ids = tuple(range(count))
    return Codestream(0x51, (depths[0] & 0x7F) + 1, bottom - top, right - left, ids, complete=_is_complete(data))


def _is_complete(data: bytes) -> bool:
    return END in data[-64:]
