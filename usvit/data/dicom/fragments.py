"""Where the frames of encapsulated pixels lie (PS3.5 A.4), found without reading them."""

import struct
from dataclasses import dataclass

from usvit.data.dicom.codestream import END
from usvit.data.dicom.header import Header, PixelElement
from usvit.data.dicom.source import Source
from usvit.data.images import BadImage

_ITEM, _DELIMITER = b"\xfe\xff\x00\xe0", b"\xfe\xff\xdd\xe0"
_MOST_FRAGMENTS = 200_000


@dataclass(frozen=True, slots=True)
class Fragment:
    """One item of the pixel data; a frame has one or several."""

    start: int
    """Of its bytes in the source."""
    length: int


def find_frames(header: Header, pixels: PixelElement, frames: int) -> list[list[Fragment]]:
    """The fragments of each frame, in order.

    Where there are as many fragments as frames, each is a frame (so it is wherever there is an extended offset table).
    Else the basic offset table tells where frames begin; where that is empty or wrong, a frame ends with the fragment
    that has an end of image in its last bytes.

    Args:
        header: open.
        pixels: its pixel data.
        frames: how many there are to be.

    Returns:
        At least one fragment for each of ``frames`` frames; frames beyond are left out.

    Raises:
        BadImage: ``truncated`` where the file ends before its last frame does; ``damaged`` where the fragments are no
            such sequence, or make fewer frames.
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


def read_frame(source: Source, fragments: list[Fragment]) -> bytes:
    """The bytes of a compressed frame."""
    parts = []
    for fragment in fragments:
        source.seek(fragment.start)
        parts.append(source.read(fragment.length))
    return b"".join(parts)


def _walk(source: Source, pixels: PixelElement) -> tuple[list[int], list[Fragment], bool]:
    """The basic offset table, the fragments, and whether the sequence came to its end before the file did."""
    source.seek(pixels.start)
    offsets: list[int] | None = None
    fragments: list[Fragment] = []
    origin = 0
    """Of the offsets: the first fragment's item."""
    while pixels.length is None or source.tell() < pixels.start + pixels.length:
        head = source.read(8)
        if len(head) < 8:
            return offsets or [], fragments, False
        tag, (length,) = head[:4], struct.unpack("<I", head[4:])
        if tag == _DELIMITER:
            break
        start = source.tell()
        if tag != _ITEM or length == 0xFFFFFFFF or len(fragments) >= _MOST_FRAGMENTS:
            raise BadImage(source.path, "its compressed pixels are no sequence of fragments")
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
    """Frames that begin where a table says; none where it points beside the fragments."""
    wanted = set(starts)
    if not wanted or not wanted <= {fragment.start for fragment in fragments} or fragments[0].start not in wanted:
        return []
    frames: list[list[Fragment]] = []
    for fragment in fragments:
        if fragment.start in wanted:
            frames.append([])
        frames[-1].append(fragment)
    return frames


def _by_end_markers(source: Source, fragments: list[Fragment]) -> list[list[Fragment]]:
    frames: list[list[Fragment]] = [[]]
    for fragment in fragments:
        frames[-1].append(fragment)
        source.seek(fragment.start + max(fragment.length - 10, 0))
        if END in source.read(min(fragment.length, 10)):
            frames.append([])
    return [frame for frame in frames if frame]


def _truncated(source: Source) -> BadImage:
    return BadImage(source.path, "it ends before its pixels do", "truncated")
