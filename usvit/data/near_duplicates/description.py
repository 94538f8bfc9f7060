"""Description of an image for finding near-duplicates: places and short hashes of its landmarks.

A hash of the whole image changes when an edge is cropped or a canvas is added. Landmarks (blobs of tissue) are found
again in an image that was resized, turned or mirrored, because each has its own scale and direction (Lowe 2004, IJCV
60:91), and the hash of its surroundings is computed at that scale and in that direction.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.burned_in import Look
from usvit.data.io import UInt8, pixel_sha256
from usvit.data.near_duplicates.working_image import Float32, WorkingImage, textured, working_image

LANDMARKS = 144
"""Maximum number of landmarks of the original image."""
STRETCHED_LANDMARKS = 108
"""Maximum number of landmarks of the stretched image. Pictures are often stored stretched, and landmarks are found
again after a stretch by a quarter, but not by a half. A picture of two views has half of this number for each."""
SCALES = ((1.9, 3.2, 0.45), (3.2, 6.4, 0.35), (6.4, 30.0, 0.20))
"""Standard deviation of a blob in pixels of the working image (from, to), and share of the landmarks. Without shares,
all landmarks would be small ones, which a picture at a third of the size does not show."""
SCALE_STEPS = 16
"""Steps per octave in which a scale is stored."""
_NORMAL_SIGMA = 14.0
"""Standard deviation, in pixels of the working image, of the window in which mean and contrast are normalised."""
_NOISE_FLOOR = 4.0
"""Grey levels; weaker structure is not amplified."""
MIN_SLOPE = 0.6
"""Grey levels per pixel of the working image; smaller slopes count as flat."""
MIN_TEXTURED = 0.7
"""Least share of a landmark's surroundings that is not flat. Letters, rulers and the edges of a sector or canvas are
the same in images of different patients, and lie on flat ground."""
PATCH = 5.0
"""Half the side of a landmark's surroundings, in standard deviations of the blob."""
_LETTER = 1.0
"""Heights of a letter; in the surroundings of a blob wider than this, a letter is only a speck."""
GRID = 16
"""Samples along a side of the surroundings."""
BITS = 48
"""Bits of a hash."""

UInt64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Description:
    """Description of one image for finding near-duplicates: at most 2.5 KB, and no pixels."""

    sha256: str
    """SHA-256 of the pixels and their shape."""
    landmarks: UInt8
    """(k, 4) uint8: x and y in pixels of the working image, scale in ``SCALE_STEPS`` per octave from 1, direction in
    1/256 of a turn; k <= ``LANDMARKS + STRETCHED_LANDMARKS``."""
    hashes: UInt64
    """(k,) hashes of ``BITS`` bits."""
    n_stretched: int
    """Number of landmarks, at the end, that belong to ``WorkingImage.stretched``."""


def describe(image: UInt8 | Look) -> Description:
    """Describe a decoded image. It takes about 20 ms for 560 x 470 pixels.

    Args:
        image: (H, W, 3) uint8 RGB, or a ``Look`` at it.
    """
    look = Look.at(image)
    work = working_image(look)
    landmarks, hashes = _described(work, LANDMARKS)
    more_landmarks, more_hashes = _described(work.stretched(), STRETCHED_LANDMARKS)
    landmarks, hashes = np.concatenate([landmarks, more_landmarks]), np.concatenate([hashes, more_hashes])
    return Description(pixel_sha256(look.pixels), landmarks, hashes, len(more_hashes))


def _described(image: WorkingImage, at_most: int) -> tuple[UInt8, UInt64]:
    normal = normalised(image.grey)
    landmarks = _landmarks(image, normal, at_most)
    x, y, scale, direction = landmarks.T
    kept = [
        np.round(x),
        np.round(y),
        np.round(SCALE_STEPS * np.log2(scale)),
        np.round(direction / (2 * np.pi) * 256) % 256,
    ]
    return np.clip(np.stack(kept, axis=1), 0, 255).astype(np.uint8), _hashes(normal, landmarks)


def normalised(grey: UInt8) -> Float32:
    """Normalise the local mean and contrast, so that gain, gamma and brightness do not matter."""
    image = grey.astype(np.float32)
    high = image - _blur(image, _NORMAL_SIGMA)
    return np.asarray(high / (np.sqrt(_blur(high**2, _NORMAL_SIGMA)) + _NOISE_FLOOR), dtype=np.float32)


def _blur(image: Float32, sigma: float) -> Float32:
    """Blur with a Gaussian; a wide one is computed at a fraction of the size, which is faster and nearly the same."""
    height, width = image.shape
    factor = 2 ** max(0, int(np.log2(sigma / 2)))
    if factor > 1:
        size = (max(1, round(width / factor)), max(1, round(height / factor)))
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.float32)
    blurred = cv2.GaussianBlur(image, (0, 0), sigma / factor, borderType=cv2.BORDER_REFLECT_101)
    if factor > 1:
        blurred = cv2.resize(blurred, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(blurred, dtype=np.float32)


def _landmarks(image: WorkingImage, normal: Float32, at_most: int) -> Float32:
    """Return (k, 4) x, y, standard deviation and direction in radians of the strongest blobs on textured ground."""
    height, width = normal.shape
    levels = np.clip(128 + 40 * normal, 0, 255).astype(np.uint8)
    # OpenCV doubles the image to find the smallest blobs, which are not needed here, so half the size is enough.
    half = cv2.resize(levels, (max(4, (width + 1) // 2), max(4, (height + 1) // 2)), interpolation=cv2.INTER_AREA)
    found = cv2.SIFT.create(0, 3, 0.01, 25.0, 1.6).detect(half, None)
    fx, fy = width / half.shape[1], height / half.shape[0]
    blobs = np.array(
        [
            ((p.pt[0] + 0.5) * fx - 0.5, (p.pt[1] + 0.5) * fy - 0.5, p.size, np.deg2rad(p.angle), p.response)
            for p in found
        ],
        dtype=np.float32,
    ).reshape(-1, 5)
    blobs = blobs[~_shows_letters(blobs, image.letters)]
    x = np.clip(np.round(blobs[:, 0]).astype(int), 0, width - 1)
    y = np.clip(np.round(blobs[:, 1]).astype(int), 0, height - 1)
    kept = []
    for low, high, share in SCALES:
        around = textured(image.grey, MIN_SLOPE, 2 * round(3.5 * np.sqrt(low * min(high, 12.0))) + 1)[y, x]
        those = blobs[(blobs[:, 2] >= low) & (blobs[:, 2] < high) & (around > MIN_TEXTURED)]
        # Ties are broken by place, so that the order in which OpenCV returns the blobs does not matter.
        order = np.lexsort((those[:, 3], those[:, 0], those[:, 1], -those[:, 4]))
        kept.append(those[order[: round(at_most * share)], :4])
    return np.concatenate(kept)[:at_most]


def _shows_letters(blobs: Float32, letters: Float32) -> NDArray[np.bool_]:
    """Return (k,) whether the surroundings of a blob show a legible letter: one reaches into them and is not a speck.

    Args:
        blobs: (k, 5) x, y, standard deviation and more.
        letters: as ``WorkingImage.letters``.
    """
    if not len(letters):
        return np.zeros(len(blobs), dtype=np.bool_)
    x, y, scale = blobs[:, :3].T[:, :, None]
    left, top, right, bottom = letters.T
    away = np.hypot(np.maximum(np.maximum(left - x, x - right), 0), np.maximum(np.maximum(top - y, y - bottom), 0))
    return np.asarray(((away < PATCH * scale) & (scale < _LETTER * (bottom - top))).any(axis=1))


def _hashes(normal: Float32, landmarks: Float32) -> UInt64:
    """Return perceptual hashes: the signs of the lowest DCT frequencies of each landmark's surroundings."""
    patches = np.zeros((len(landmarks), GRID, GRID), dtype=np.float32)
    steps = ((np.arange(GRID) + 0.5) / GRID - 0.5) * 2 * PATCH
    level = np.round(2 * np.log2(landmarks[:, 2])).astype(int)
    for each in np.unique(level):
        those = np.flatnonzero(level == each)
        smooth = _blur(normal, 0.6 * 2 ** (each / 2) * 2 * PATCH / GRID)
        x, y, scale, direction = (column[:, None, None] for column in landmarks[those].astype(np.float64).T)
        along, across = np.cos(direction) * scale, np.sin(direction) * scale
        map_x = x + along * steps[None, :] - across * steps[:, None]
        map_y = y + across * steps[None, :] + along * steps[:, None]
        at_x, at_y = (each.reshape(len(those), -1).astype(np.float32) for each in (map_x, map_y))
        found = cv2.remap(smooth, at_x, at_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        patches[those] = found.reshape(len(those), GRID, GRID)
    from scipy.fft import dctn  # on use: images that the cache knows need none

    spectrum = dctn(patches, axes=(1, 2))  # (k, frequency across the direction, frequency along it)
    bits = spectrum[:, _FREQUENCIES[:, 0], _FREQUENCIES[:, 1]] > 0
    return np.asarray((bits.astype(np.uint64) << np.arange(BITS, dtype=np.uint64)).sum(axis=1, dtype=np.uint64))


def _lowest_frequencies() -> NDArray[np.int64]:
    """Return (BITS, 2) frequencies across and along the direction, lowest first, without the mean."""
    across, along = np.mgrid[:GRID, :GRID].reshape(2, -1)
    order = np.lexsort((along, across, across**2 + along**2))[1 : BITS + 1]
    return np.stack([across[order], along[order]], axis=1)


_FREQUENCIES = _lowest_frequencies()


def _signs(changed: NDArray[np.bool_]) -> int:
    return sum(1 << bit for bit, changes in enumerate(changed) if changes)


# Mirroring changes the sign of the odd frequencies across the direction only. Inverting changes all signs and reverses
# the direction of each landmark, which together change the sign of the even frequencies.
_MIRRORED = _signs(_FREQUENCIES[:, 0] % 2 == 1)
_INVERTED = _signs(_FREQUENCIES.sum(axis=1) % 2 == 0)
CHANGES = np.array([0, _MIRRORED, _INVERTED, _MIRRORED ^ _INVERTED], dtype=np.uint64)
"""(4,) bits in which the hashes of near-duplicates differ: none, mirrored, inverted, both. Bit 0 of the index means
mirrored, bit 1 inverted. Turning a picture changes only the directions of its landmarks."""
