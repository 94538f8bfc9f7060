"""What is kept of one image to find its copies: a thumbnail, and hashes of the patches around its landmarks.

A hash of the whole image changes when an edge is cropped. Landmarks (blobs of tissue) stay, and the perceptual
hash of the patch around one survives cropping, captions elsewhere, JPEG, gain and resizing.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn

from usvit.data.images import UInt8, pixel_sha256

SIDE = 96
"""Pixels a side of the thumbnail; 9 KB, and speckle still shows. Square whatever the image's shape, so that an
image resized to another shape has the same one."""
NORMAL_SIGMA = 8.0
"""Pixels of the thumbnail over which the mean and the contrast are made equal."""
NOISE_FLOOR = 3.0
"""Grey levels. Weaker structure is not amplified: black borders and flat images have no landmarks."""
LANDMARKS = 40
"""At most so many, the strongest. BUSI's images have 35 or more."""
BLOB_SIGMA = 2.0
"""Pixels of the thumbnail: blobs of tissue, coarser than speckle, which resizing changes."""
BLOB_DISTANCE = 3
"""Pixels of the thumbnail between landmarks."""
MIN_BLOB = 0.02
"""Of the local contrast: below, it is rounding."""
MARGIN = 11
"""Pixels of the thumbnail. Nearer to the border the patch hangs over, and a crop changes it."""
PATCH_SIDES = (24.0, 27.0, 30.0, 34.0)
"""Pixels of the thumbnail. A crop enlarges what is left: patches of different sizes then show the same tissue,
up to a crop by a fifth."""
GRID = 12
"""Samples along a patch."""
BITS = 24
"""Of a hash. Comparing all pairs of BUSI finds 227; through hashes of 28 bits 217 of them are found, of 24 bits 224,
of 20 bits all, but with twelve times as many chance candidates as with 24, which grow as the square."""

Float32 = NDArray[np.float32]
UInt32 = NDArray[np.uint32]


@dataclass(frozen=True)
class Description:
    """What is kept of one image to find its copies: about 10 KB."""

    sha256: str
    """SHA-256 of the pixels and their shape."""
    thumbnail: UInt8
    """(SIDE, SIDE) grey."""
    landmarks: UInt8
    """(k, 2) x and y in the thumbnail, k <= LANDMARKS."""
    hashes: UInt32
    """(k, len(PATCH_SIDES)) hash of BITS bits of the patch around each landmark, for each size of patch."""


def describe(pixels: UInt8) -> Description:
    """Describe a decoded image; a few milliseconds.

    Args:
        pixels: (H, W, 3) uint8 RGB.
    """
    thumbnail = np.asarray(Image.fromarray(pixels).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX))
    normal = normalise(thumbnail, NORMAL_SIGMA)
    landmarks = _landmarks(normal)
    return Description(pixel_sha256(pixels), thumbnail, landmarks, _hashes(normal, landmarks))


def mirrored(hashes: UInt32) -> UInt32:
    """The hashes that the image mirrored from left to right would have."""
    return hashes ^ _MIRROR


def normalise(thumbnail: UInt8, sigma: float) -> Float32:
    """Local mean removed and local contrast made equal, so that gain, brightness and depth do not matter."""
    grey = thumbnail.astype(np.float32)
    high = grey - blur(grey, sigma)
    return np.asarray(high / (np.sqrt(blur(high**2, sigma)) + NOISE_FLOOR), dtype=np.float32)


def blur(image: Float32, sigma: float) -> Float32:
    """Gaussian, in pixels; mirrored beyond the border."""
    blurred = cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101)
    return np.asarray(blurred, dtype=np.float32)


def _landmarks(normal: Float32) -> UInt8:
    """(k, 2) x and y of the strongest blobs, bright or dark: extremes of a difference of Gaussians."""
    blobs = np.abs(blur(normal, BLOB_SIGMA) - blur(normal, 1.6 * BLOB_SIGMA))
    around = np.ones((2 * BLOB_DISTANCE + 1, 2 * BLOB_DISTANCE + 1), dtype=np.uint8)
    peak = (blobs == cv2.dilate(blobs, around)) & (blobs > MIN_BLOB)
    inner = slice(MARGIN, SIDE - MARGIN)
    y, x = np.nonzero(peak[inner, inner])
    places = np.stack([x, y], axis=1) + MARGIN
    strongest = np.argsort(-blobs[places[:, 1], places[:, 0]], kind="stable")[:LANDMARKS]
    return places[strongest].astype(np.uint8)


def _hashes(normal: Float32, landmarks: UInt8) -> UInt32:
    """Signs of the lowest spatial frequencies of each patch: a perceptual hash (DCT)."""
    if len(landmarks) == 0:
        return np.zeros((0, len(PATCH_SIDES)), dtype=np.uint32)
    steps = np.array(PATCH_SIDES, dtype=np.float32)[:, None] * ((np.arange(GRID, dtype=np.float32) + 0.5) / GRID - 0.5)
    x = landmarks[:, None, 0, None] + steps  # (k, sizes, GRID)
    y = landmarks[:, None, 1, None] + steps
    shape = (len(landmarks), len(PATCH_SIDES), GRID, GRID)
    map_x = np.broadcast_to(x[..., None, :], shape).reshape(-1, GRID**2).astype(np.float32)
    map_y = np.broadcast_to(y[..., :, None], shape).reshape(-1, GRID**2).astype(np.float32)
    patches = cv2.remap(blur(normal, 1.0), map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    spectrum = dctn(patches.reshape(shape), axes=(2, 3))  # (k, sizes, vertical frequency, horizontal frequency)
    bits = spectrum[:, :, _FREQUENCIES[:, 0], _FREQUENCIES[:, 1]] > 0
    return (bits.astype(np.uint32) << np.arange(BITS, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)


def _lowest_frequencies() -> NDArray[np.int64]:
    """(BITS, 2) vertical and horizontal frequency, the lowest first, without the mean."""
    vertical, horizontal = np.mgrid[:GRID, :GRID].reshape(2, -1)
    order = np.lexsort((horizontal, vertical, vertical**2 + horizontal**2))[1 : BITS + 1]
    return np.stack([vertical[order], horizontal[order]], axis=1)


_FREQUENCIES = _lowest_frequencies()
# Mirroring changes the sign of the odd horizontal frequencies, and of no other.
_MIRROR = np.uint32(sum(1 << bit for bit, (_, horizontal) in enumerate(_FREQUENCIES) if horizontal % 2))
