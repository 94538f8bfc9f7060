"""The formats of pictures and videos that usvit reads.

This table is the only list; suffixes, help and errors are made from it.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class PictureFormat:
    """One format of pictures or videos."""

    name: str
    """Name in help and errors."""
    pillow: str
    """Name of Pillow's plugin; "" for a video."""
    suffixes: tuple[str, ...]
    """Suffixes by which folders of images are searched, in lower case; the usual one comes first."""
    signature: bytes
    """Regular expression of the first bytes of a file."""
    has_frames: bool = False
    """True if a file may hold several frames. Further pictures in a JPEG are previews."""
    demuxer: str = ""
    """FFmpeg's name of a video's format; "" for a picture."""


PICTURE_FORMATS = (
    PictureFormat("PNG", "PNG", (".png",), rb"\x89PNG\r\n\x1a\n", has_frames=True),
    PictureFormat("JPEG", "JPEG", (".jpg", ".jpeg"), rb"\xff\xd8\xff"),
    PictureFormat("TIFF", "TIFF", (".tif", ".tiff"), rb"II[\x2a\x2b]\0|MM\0[\x2a\x2b]", has_frames=True),
    # The two letters BM alone say little, so the length of the second header, of which there are eight kinds, is
    # checked, too.
    PictureFormat("BMP", "BMP", (".bmp",), rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0"),
    PictureFormat("GIF", "GIF", (".gif",), rb"GIF8[79]a", has_frames=True),
    PictureFormat("WebP", "WEBP", (".webp",), rb"RIFF.{4}WEBP", has_frames=True),
    PictureFormat(
        "JPEG 2000",
        "JPEG2000",
        (".jp2", ".j2k", ".j2c", ".jpc", ".jpx"),
        rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
    ),
    PictureFormat("PNM", "PPM", (".pgm", ".ppm", ".pbm", ".pnm"), rb"P[1-6]\s+(?:#|\d+\s+\d+\s)"),
    # HEIC, AVIF, camera raw files and sound are of the same family as MP4.
    PictureFormat(
        "MP4",
        "",
        (".mp4", ".m4v", ".mov"),
        rb".{4}(?:ftyp(?!he[iv]|mi[af]|msf|avi|crx|M4[AB])|moov\0|mdat|wide)",
        has_frames=True,
        demuxer="mov",
    ),
    PictureFormat("AVI", "", (".avi",), rb"RIFF.{4}AVI ", has_frames=True, demuxer="avi"),
    PictureFormat("Matroska", "", (".mkv",), rb"\x1a\x45\xdf\xa3", has_frames=True, demuxer="matroska"),
    PictureFormat("MPEG", "", (".mpg", ".mpeg"), rb"\0\0\x01\xba", has_frames=True, demuxer="mpeg"),
)
IMAGE_SUFFIXES = frozenset(suffix for one in PICTURE_FORMATS for suffix in one.suffixes)
"""Suffixes of all formats, in lower case."""
STILL_SUFFIXES = frozenset(suffix for one in PICTURE_FORMATS if not one.demuxer for suffix in one.suffixes)
"""Those of pictures alone, without videos."""
PICTURE_NAMES = ", ".join(one.name for one in PICTURE_FORMATS)
"""The formats for help and errors."""

UNREAD_SUFFIXES = frozenset(
    {".heic", ".heif", ".avif", ".jxl", ".tga", ".psd", ".dng", ".emf", ".wmf", ".svg", ".jls"}
    | {".wmv", ".webm", ".m2v", ".ts", ".m2ts", ".vob", ".3gp"}
)
"""Suffixes of pictures and videos that are not read. A folder of images that holds one is refused, so that no image is
left out without a word."""

_SIGNATURES = [(one, re.compile(one.signature, re.DOTALL)) for one in PICTURE_FORMATS]


def picture_format(head: bytes) -> PictureFormat | None:
    """Return the format of a picture by its first ``HEAD_BYTES`` bytes; None if they begin no picture."""
    return next((one for one, signature in _SIGNATURES if signature.match(head)), None)
