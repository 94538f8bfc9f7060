"""Hashes of decoded pixels, which identify an image independently of its file format."""

import hashlib
from dataclasses import dataclass

import imagehash
import numpy as np
from PIL import Image

from usvit.data.io.types import UInt8


@dataclass(frozen=True)
class Fingerprint:
    """Hashes and shape of an image, independent of its file format."""

    sha256: str
    """SHA-256 of the decoded RGB pixels and their shape; lossless recompression does not change it."""
    phash: str
    """64-bit perceptual hash (DCT), 16 hexadecimal digits; similar images have similar hashes."""
    shape: tuple[int, int]
    """(H, W)."""


def fingerprint(pixels: UInt8) -> Fingerprint:
    """Compute the fingerprint of decoded pixels, (H, W, 3) uint8."""
    height, width = pixels.shape[:2]
    return Fingerprint(pixel_sha256(pixels), str(imagehash.phash(Image.fromarray(pixels))), (height, width))


def pixel_sha256(pixels: UInt8) -> str:
    """Compute the SHA-256 of decoded pixels, (H, W, 3) uint8, and their shape, in hexadecimal digits."""
    height, width = pixels.shape[:2]
    digest = hashlib.sha256(f"{height}x{width}x3:".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()
