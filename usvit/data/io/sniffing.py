"""Recognise image files by their first bytes; the name counts only if the bytes decide nothing."""

import re
from pathlib import Path
from typing import Literal

from usvit.data.io.formats import picture_format
from usvit.files import open_regular

DICOM_SUFFIXES = frozenset({".dcm", ".dicom"})
HEAD_BYTES = 132
"""Number of bytes at the beginning of a file that identify its format."""

_VR = b"AE|AS|AT|CS|DA|DS|DT|FD|FL|IS|LO|LT|OB|OD|OF|OL|OV|OW|PN|SH|SL|SQ|SS|ST|SV|TM|UC|UI|UL|UN|UR|US|UT|UV"
# Group 0002 or 0008, then the letters of a VR or, in implicit VR, the length of the first value: short and even.
_BARE_DICOM = re.compile(
    rb"[\x02\x08]\0.[\0-\x20](?:" + _VR + rb"|[\0-\xfe]\0\0\0)|\0[\x02\x08][\0-\x20].(?:" + _VR + rb")", re.DOTALL
)


def kind_of(head: bytes) -> Literal["dicom", "picture"] | None:
    """Return the kind of a file by its first ``HEAD_BYTES`` bytes.

    Returns:
        ``dicom``: the letters DICM are at byte 128 (PS3.10 7.1), or the file is a data set without preamble, as some
        archives export it, which begins with an element of group 0002 or 0008. ``picture``: one of
        ``PICTURE_FORMATS``. None: neither.
    """
    if head[128:132] == b"DICM":
        return "dicom"
    if picture_format(head) is not None:
        return "picture"
    return "dicom" if _BARE_DICOM.match(head) else None


def is_dicom(path: Path) -> bool:
    """Return whether a file is a DICOM file, by its content or, if that is not recognised, by its suffix."""
    try:
        with open_regular(path) as file:
            kind = kind_of(file.read(HEAD_BYTES))
    except OSError:  # decoding the file reports the error
        kind = None
    return kind == "dicom" or (kind is None and path.suffix.lower() in DICOM_SUFFIXES)
