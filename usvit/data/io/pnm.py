"""Decode PGM, PPM and PBM files (PNM), whose header states the largest value.

Pillow reads only the first picture of several in one file, and the upper bits of colours of 16 bits; OpenCV ignores the
largest value. The format is simple enough to be read with NumPy.

Source: https://netpbm.sourceforge.net/doc/pgm.html, ppm.html and pbm.html.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage, refuse_size
from usvit.data.io.grey_levels import DeepFrame

_GAP = rb"(?:\s|#[^\n\r]*[\n\r])+"
_HEAD = re.compile(rb"P([1-6])" + _GAP + rb"(\d{1,7})" + _GAP + rb"(\d{1,7})")
_LARGEST = re.compile(_GAP + rb"(\d{1,5})")
_COMMENT = re.compile(rb"#[^\n\r]*")


def decode_pnm(path: Path, data: bytes) -> DeepFrame:
    """Decode the only picture of a file.

    Args:
        path: The file, for errors.
        data: The whole file.

    Returns:
        The values. A largest value of 65,535 states nothing, since writers of 16 bits use it whatever the values are.

    Raises:
        BadImage: The picture is larger than ``MAX_PIXELS``, truncated or damaged, or the file holds several pictures
            (``several_frames``).
    """
    head = _HEAD.match(data)
    if head is None:
        raise BadImage(path, "it is damaged or truncated (its header)")
    kind, width, height = (int(text) for text in head.groups())
    refuse_size(path, height, width)
    is_bitmap, is_plain, end, largest = kind in (1, 4), kind < 4, head.end(), 1
    if not is_bitmap:
        said = _LARGEST.match(data, end)
        largest, end = (int(said[1]), said.end()) if said else (0, end)
    if not (width and height and largest in range(1, 65536)):
        raise BadImage(path, "it is damaged or truncated (its header)")
    shape = (height, width, 3) if kind in (3, 6) else (height, width)
    body = data[end + 1 :]  # one character of white space follows the header
    try:
        values = _plain(body, shape, is_bitmap) if is_plain else _raw(path, body, shape, largest, is_bitmap)
    except IndexError as error:
        raise BadImage(path, "it ends before its pixels do", "truncated") from error
    if values.max() > largest:
        raise BadImage(path, f"it has values above the largest one of its header, {largest}")
    return DeepFrame(values, 16, None if largest == 65535 else largest, white_is_zero=is_bitmap)


def _plain(body: bytes, shape: tuple[int, ...], is_bitmap: bool) -> NDArray[Any]:
    """Return the values of a picture that is written as text; the digits of a bitmap need no space between them.

    Raises:
        IndexError: There are too few values.
        ValueError: A value is not a number from 0 on.
    """
    count, text = math.prod(shape), _COMMENT.sub(b"", body)
    words: Sequence[bytes | int] = text.split(None, count)
    if is_bitmap:
        words = [byte - 48 for byte in text if byte in b"01"]
    if len(words) < count:
        raise IndexError
    values = np.array([int(word) for word in words[:count]], dtype=np.int64)
    if values.min() < 0:
        raise ValueError("a negative value")
    return values.reshape(shape)


def _raw(path: Path, body: bytes, shape: tuple[int, ...], largest: int, is_bitmap: bool) -> NDArray[Any]:
    """Return the values of a picture that is written as bytes or words.

    Raises:
        IndexError: There are too few bytes.
        BadImage: Another picture follows.
    """
    dtype = np.dtype(np.uint8 if largest < 256 else ">u2")
    row = -(-shape[1] // 8) if is_bitmap else math.prod(shape[1:]) * dtype.itemsize
    content, rest = body[: shape[0] * row], body[shape[0] * row :]
    if len(content) < shape[0] * row:
        raise IndexError
    if re.match(rb"\s*P[1-6]\s", rest):
        raise BadImage(path, "it holds several pictures, one after the other; save each in a file", "several_frames")
    if is_bitmap:
        return np.unpackbits(np.frombuffer(content, np.uint8).reshape(shape[0], row), axis=1, count=shape[1])
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
