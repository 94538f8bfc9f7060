"""Small pictures, and what their refusal must say."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.conftest import speckle
from usvit.data.io.bad_image import BadImage
from usvit.data.io.decoding import read_image

GREY = speckle(1)
COLOUR = np.stack([speckle(1), speckle(2), speckle(3)], axis=2)


def png_header(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, and which holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def packed(format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(COLOUR).save(buffer, format_, **options)
    return buffer.getvalue()


def refused(path: Path) -> BadImage:
    with pytest.raises(BadImage) as caught:
        read_image(path)
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    assert "--skip-bad" in str(caught.value)
    return caught.value
