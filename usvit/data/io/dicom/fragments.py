"""Locate the frames of encapsulated pixels (PS3.5 A.4) without reading them."""

import struct
from dataclasses import dataclass

from usvit.data.io.bad_image import BadImage
from usvit.data.io.codestream import END
from usvit.data.io.dicom.byte_stream import ByteStream
from usvit.data.io.dicom.header import Header, PixelElement

_ITEM, _DELIMITER = b"\xfe\xff\x00\xe0", b"\xfe\xff\xdd\xe0"
_MOST_FRAGMENTS = 200_000


@dataclass(frozen=True, slots=True)
class Fragment:
    """One item of the pixel data; a frame has one or several."""

    start: int
    """Offset of its bytes in the source."""
    length: int


def find_frames(header: Header, pixels: PixelElement, frames: int) -> list[list[Fragment]]:
    """Return the fragments of each frame, in order.

    If there are as many fragments as frames, each fragment is a frame; this holds for every file with an extended
    offset table. Otherwise the basic offset table gives the first fragment of each frame. If that table is empty or
    wrong, a frame ends with a fragment that has an end-of-image marker in its last bytes.

    Args:
        header: Header of the open file.
        pixels: Its pixel data.
        frames: Number of frames that the header claims.

    Returns:
        At least one fragment for each of the ``frames`` frames; further frames are left out.

    Raises:
        BadImage: ``truncated`` if the file ends before its last frame; ``damaged`` if the fragments are not a valid
            sequence, or are too few.
    """
    offsets, fragments, ended = _walk(header.source, pixels)
    if len(fragments) < frames or not fragments:
        if ended:
            raise BadImage(header.path, f"it has {len(fragments)} parts of pixels, but claims {frames} frames")
        raise _truncated(header.source)
    if len(fragments) == frames:
        found = [[fragment] for fragment in fragments]
    elif frames == 1:
        found = [fragments]
    else:
        found = _by_offsets(fragments, offsets) or _by_end_markers(header.source, fragments)
    if len(found) < frames:
        raise BadImage(header.path, f"it has pixels for {len(found)} frames, but claims {frames}")
    return found[:frames]


def read_frame(source: ByteStream, fragments: list[Fragment]) -> bytes:
    """Read the bytes of a compressed frame."""
    parts = []
    for fragment in fragments:
        source.seek(fragment.start)
        parts.append(source.read(fragment.length))
    return b"".join(parts)


def _walk(source: ByteStream, pixels: PixelElement) -> tuple[list[int], list[Fragment], bool]:
    """Return the basic offset table, the fragments, and whether the sequence is complete."""
    source.seek(pixels.start)
    offsets: list[int] | None = None
    fragments: list[Fragment] = []
    origin = 0  # offsets count from the item of the first fragment
    while pixels.length is None or source.tell() < pixels.start + pixels.length:
        head = source.read(8)
        if len(head) < 8:
            return offsets or [], fragments, False
        tag, (length,) = head[:4], struct.unpack("<I", head[4:])
        if tag == _DELIMITER:
            break
        start = source.tell()
        if tag != _ITEM or length == 0xFFFFFFFF or len(fragments) >= _MOST_FRAGMENTS:
            raise BadImage(source.path, "its compressed pixels are not a sequence of fragments")
        if not source.holds(start + length):
            raise _truncated(source)
        if offsets is None:
            if length > 4 * _MOST_FRAGMENTS:
                raise BadImage(source.path, "its table of frames is far too long")
            table = source.read(length)
            origin = source.tell()
            offsets = [origin + 8 + offset for (offset,) in struct.iter_unpack("<I", table[: length // 4 * 4])]
        else:
            fragments.append(Fragment(start, length))
            source.seek(start + length)
    return offsets or [], fragments, True


def _by_offsets(fragments: list[Fragment], starts: list[int]) -> list[list[Fragment]]:
    """Split fragments into frames by an offset table; return none if the table does not match the fragments."""
    wanted = set(starts)
    if not wanted or not wanted <= {fragment.start for fragment in fragments} or fragments[0].start not in wanted:
        return []
    frames: list[list[Fragment]] = []
    for fragment in fragments:
        if fragment.start in wanted:
            frames.append([])
        frames[-1].append(fragment)
    return frames


def _by_end_markers(source: ByteStream, fragments: list[Fragment]) -> list[list[Fragment]]:
    frames: list[list[Fragment]] = [[]]
    for fragment in fragments:
        frames[-1].append(fragment)
        source.seek(fragment.start + max(fragment.length - 10, 0))
        if END in source.read(min(fragment.length, 10)):
            frames.append([])
    return [frame for frame in frames if frame]


def _truncated(source: ByteStream) -> BadImage:
    return BadImage(source.path, "it ends before its pixels do", "truncated")
