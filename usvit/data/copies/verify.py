"""Is it the same frame? The two thumbnails are laid over each other, and their speckle compared.

All B-mode images are alike at low frequencies: bright above, dark below. Speckle is the fingerprint of a frame:
it is another one in every other frame of the same lesion, unless the probe hardly moved.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.copies.candidates import MAX_SHIFT
from usvit.data.copies.description import NORMAL_SIGMA, SIDE, Description, Float32, blur, mirrored, normalise
from usvit.data.images import UInt8

MAX_BITS = 4
"""Bits in which the hashes of one landmark may differ, of 24."""
MIN_LANDMARKS = 8
"""Landmarks that must agree on one crop. On phantoms, at most 10 do by chance; copies cropped by a fifth had 16 or
more, neighbouring frames in BUSI 11 or more. Cheap: it spares most false candidates the comparison of pixels."""
MAX_MATCHES = 40
"""Matched landmarks that are looked at, the best ones first: their pairs grow as the square."""
MIN_DISTANCE = 12
"""Pixels of the thumbnail between two landmarks that are to tell the scale; nearer ones tell it badly."""
MAX_RESIDUAL = 2.0
"""Pixels of the thumbnail between a landmark and where the crop puts it."""
MAX_SCALE = 1.5
"""Of either axis. BUSI holds sector images that are stored again cut to their middle, 1.4 times as wide."""
MAX_STEPS = 10
"""Of the refinement; most pairs need three."""
SPECKLE_SIGMA = 3.0
"""Pixels of the thumbnail: what is coarser is anatomy, not speckle."""
BLOCK = 12
"""Side of the blocks that are correlated one by one, so that captions and calipers spoil only their own."""
MIN_BLOCKS = 16
"""A quarter of all: fewer are not enough to judge by."""
MIN_CONTRAST = 1.0
"""Standard deviation in grey levels of a block that counts; rounding alone makes 0.3. Black borders do not count."""

Array = NDArray[np.float64]


def similarity(first: Description, second: Description, flipped: bool) -> float:
    """Median correlation of the speckle over the blocks that both images show.

    Args:
        first, second: the images.
        flipped: mirror the second one from left to right.

    Returns:
        In [-1, 1]; 0 where their landmarks do not fit together. The same frame has 0.8 and more, unless it was
        cropped by a fifth of its side or more; other patients stay below 0.45 (``MIN_SIMILARITY``).
    """
    crop = _fit_landmarks(first, second, flipped)
    if crop is None:
        return 0.0
    a, b = first.thumbnail, second.thumbnail[:, ::-1] if flipped else second.thumbnail
    return _speckle_similarity(a, b, _refine(normalise(a, NORMAL_SIGMA), normalise(b, NORMAL_SIGMA), crop))


def _fit_landmarks(first: Description, second: Description, flipped: bool) -> Array | None:
    """The crop on which most landmarks agree.

    Returns:
        (2, 2), scale and shift of y, then of x: place in the second thumbnail = scale * place in the first + shift.
        Copies are cropped and stretched, never rotated.
    """
    a, b = _matches(first, second, flipped)
    one, other = np.triu_indices(len(a), 1)
    apart = (np.abs(a[one] - a[other]) >= MIN_DISTANCE).all(axis=1)
    one, other = one[apart], other[apart]
    scale = (b[one] - b[other]) / (a[one] - a[other])
    shift = b[one] - scale * a[one]
    sane = _is_sane(scale)
    scale, shift = scale[sane], shift[sane]
    if len(scale) == 0:
        return None
    residual = np.abs(scale[:, None] * a + shift[:, None] - b).max(axis=2)  # (crops tried, matches)
    agree = residual < MAX_RESIDUAL
    best = agree[np.argmax(agree.sum(axis=1))]
    if len(np.unique(a[best], axis=0)) < MIN_LANDMARKS:
        return None
    return np.array([np.polyfit(a[best, axis], b[best, axis], 1) for axis in (0, 1)])


def _matches(first: Description, second: Description, flipped: bool) -> tuple[Array, Array]:
    """Places (y, x) in both thumbnails, each (m, 2), of landmarks with nearly equal hashes."""
    hashes = mirrored(second.hashes) if flipped else second.hashes
    bits = np.bitwise_count(first.hashes[:, None, :, None] ^ hashes[None, :, None, :]).min(axis=(2, 3), initial=255)
    a, b = (each.landmarks[:, ::-1].astype(np.float64) for each in (first, second))
    if flipped:
        b[:, 1] = SIDE - 1 - b[:, 1]
    near = np.abs(a[:, None] - b).max(axis=2) <= MAX_SHIFT
    i, j = np.nonzero(near & (bits <= MAX_BITS))
    best = np.argsort(bits[i, j], kind="stable")[:MAX_MATCHES]
    return a[i[best]], b[j[best]]


def _refine(a: Float32, b: Float32, crop: Array) -> Array:
    """Gauss-Newton on every other pixel: landmarks are good to a pixel, speckle needs a tenth of one."""
    a = blur(a, 1.0)[::2, ::2]
    b = blur(b, 1.0)
    slopes = np.gradient(b)
    y, x = np.mgrid[:SIDE:2, :SIDE:2]
    for _ in range(MAX_STEPS):
        inside = _inside(crop)[::2, ::2]
        moved, slope_y, slope_x = (_lay_over(image, crop, cv2.INTER_LINEAR, stride=2) for image in (b, *slopes))
        error = (a - moved)[inside]
        jacobian = np.stack([slope_y * y, slope_y, slope_x * x, slope_x], axis=-1)[inside]  # (pixels, 4)
        weighted = jacobian / (1 + (error[:, None] / 0.5) ** 2)  # calipers and captions count little
        step = np.linalg.lstsq(weighted.T @ jacobian, weighted.T @ error)[0].reshape(2, 2)
        crop = crop + step
        if not _is_sane(crop[:, 0]) or np.abs(step @ [SIDE, 1]).max() < 0.03:
            break
    return crop


def _speckle_similarity(a: UInt8, b: UInt8, crop: Array) -> float:
    first = a.astype(np.float32)
    second = _lay_over(b.astype(np.float32), crop, cv2.INTER_CUBIC)
    u, v = (_blocks(image - blur(image, SPECKLE_SIGMA)) for image in (first, second))
    u, v = u - u.mean(axis=1, keepdims=True), v - v.mean(axis=1, keepdims=True)
    contrast_u, contrast_v = u.std(axis=1), v.std(axis=1)
    count = _blocks(_inside(crop)).all(axis=1) & (contrast_u > MIN_CONTRAST) & (contrast_v > MIN_CONTRAST)
    if count.sum() < MIN_BLOCKS:
        return 0.0
    correlation = (u * v).mean(axis=1)[count] / (contrast_u * contrast_v)[count]
    return float(np.median(correlation))


def _blocks(image: NDArray[np.generic]) -> NDArray[np.generic]:
    """(SIDE, SIDE) -> (blocks, BLOCK**2)."""
    across = SIDE // BLOCK
    return image.reshape(across, BLOCK, across, BLOCK).swapaxes(1, 2).reshape(across**2, BLOCK**2)


def _lay_over(image: Float32, crop: Array, interpolation: int, stride: int = 1) -> Float32:
    """The second image where the first one shows the same tissue; every ``stride``-th pixel."""
    (scale_y, shift_y), (scale_x, shift_x) = crop
    matrix = np.array([[stride * scale_x, 0, shift_x], [0, stride * scale_y, shift_y]])
    size = (SIDE // stride, SIDE // stride)
    flags = interpolation | cv2.WARP_INVERSE_MAP
    moved = cv2.warpAffine(image, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, dtype=np.float32)


def _inside(crop: Array) -> NDArray[np.bool_]:
    """(SIDE, SIDE): which pixels of the first thumbnail the second one shows."""
    place = crop[:, :1] * np.arange(SIDE) + crop[:, 1:]
    inside = (place >= 0) & (place <= SIDE - 1)
    return inside[0][:, None] & inside[1]


def _is_sane(scale: Array) -> NDArray[np.bool_]:
    return np.asarray(((scale < MAX_SCALE) & (scale > 1 / MAX_SCALE)).all(axis=-1))
