"""What one image shows that a model should not learn from, or that a person should see before it is used."""

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.audit.marks import Look, components, has_calipers, has_text

UInt8 = NDArray[np.uint8]

COLOUR_SPREAD, COLOUR_SHARE = 20, 1e-4
"""Channels that differ by so many grey levels make a pixel coloured; so large a share of them an image."""
BOX_SPREAD, BOX_SIDE = 12, 0.12
"""A Doppler box is a thin coloured frame, often faint; its sides are at least this part of the image's."""
FLOW_SPREAD, FLOW_AREA = 60, 50
"""Flow is strongly red or blue, in one patch of so many px."""
TINT_SHARE = 0.5
"""With more coloured pixels than this, the whole picture is tinted: colour, but no Doppler."""
SEAM_STEP, SEAM_RATIO, SEAM_ROWS = 12, 2.5, 0.65
"""Grey levels from one side of a seam to the other; the same as a multiple of the usual step; share of rows."""
SEAM_PLACE, SEAM_DEPTH = (0.3, 0.7), 0.5
"""Where a seam is looked for, in widths; and down to which depth, in heights: deep rows are often all dark."""
SEAM_MIN_SIDE = 200
"""px: in smaller images shadows have edges as sharp as a seam, and nothing is said."""
BLANK_RANGE = 24
"""Grey levels between the 1st and the 99th percentile of an image that shows something."""
BORDER_LEVELS, BORDER_FLAT, BORDER_SHARE = 3, 0.95, 0.1
"""So large a part of a border's row or column is within so many grey levels of the edge's; the rest may be text. A
letterbox takes up the third part of the image."""
SIZE_FACTOR, ASPECT_FACTOR = 2.0, 1.5
"""So many times the data set's median, or that part of it, is odd: of the side (height and width's geometric mean)
and of width over height."""


def has_colour(image: UInt8 | Look) -> bool:
    """Whether there are coloured pixels: coloured marks, Doppler, or a tinted picture.

    On BUSI: all 15 images with colour that can be seen, and no other.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    return _share(Look.at(image).spread, COLOUR_SPREAD)[1] >= COLOUR_SHARE


def has_doppler(image: UInt8 | Look) -> bool:
    """Whether a Doppler examination is shown: a patch of red or blue flow, or the coloured frame of its box.

    On BUSI: all 11 images with a box, and no other; the 4 with coloured marks alone are told apart.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    look = Look.at(image)
    spread = look.spread
    coloured, share = _share(spread, BOX_SPREAD)
    if not 0 < share <= TINT_SHARE:
        return False
    height, width = spread.shape
    across = cv2.erode(coloured, np.ones((1, max(3, round(BOX_SIDE * width))), np.uint8), borderValue=0)
    down = cv2.erode(coloured, np.ones((max(3, round(BOX_SIDE * height)), 1), np.uint8), borderValue=0)
    if across.any() and down.any():
        return True
    hue = 2 * cv2.cvtColor(look.pixels, cv2.COLOR_RGB2HSV)[..., 0].astype(np.int16)  # degrees
    red_or_blue = (hue <= 30) | (hue >= 330) | ((hue >= 180) & (hue <= 270))
    flow = ((spread >= FLOW_SPREAD) & red_or_blue).astype(np.uint8)
    areas = components(flow)[1][1:, cv2.CC_STAT_AREA]
    return bool((areas >= FLOW_AREA).any())


def is_dual_view(image: UInt8 | Look) -> bool:
    """Whether two views stand side by side: in most rows the grey level jumps at one place near the middle.

    Measured on 800 pairs of BUSI images set side by side, with a gap of 0, 1, 4 or 12 px: 95.5% flagged (91%
    of those without a gap); of BUSI's own 780 images (none is dual), none. Not seen: views one above the other, a
    seam off the middle.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    grey = Look.at(image).grey
    height, width = grey.shape
    if min(height, width) < SEAM_MIN_SIDE:
        return False
    # A median filter takes away thin lines (frames, calipers) and leaves the jump. It looks two rows further down.
    rows = round(SEAM_DEPTH * height)
    upper = cv2.medianBlur(grey[: rows + 2], 5)[:rows]
    jumps = cv2.transpose(cv2.absdiff(upper[:, 3:], upper[:, :-3]))
    # NumPy sorts rows of 16-bit numbers several times faster than it partitions columns.
    step = _quantile(np.sort(jumps.astype(np.int16), axis=1), 1 - SEAM_ROWS)
    first, last = (round(place * width) for place in SEAM_PLACE)
    return bool(step[first:last].max() >= max(SEAM_STEP, SEAM_RATIO * float(np.median(step))))


def is_blank(image: UInt8 | Look) -> bool:
    """Whether hardly anything is shown: grey levels span less than ``BLANK_RANGE``.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    every_other = np.ascontiguousarray(Look.at(image).grey[::2, ::2])
    counts = cv2.calcHist([every_other], [0], None, [256], [0, 256]).ravel().astype(np.int64)
    ordered = np.repeat(np.arange(256, dtype=np.uint8), counts)
    return bool(_quantile(ordered, 0.99) - _quantile(ordered, 0.01) < BLANK_RANGE)


def has_letterbox(image: UInt8 | Look) -> bool:
    """Whether a flat border, of any grey, takes up ``BORDER_SHARE`` of the image or more.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    grey = Look.at(image).grey
    edge = int(np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])))
    _, other = cv2.threshold(cv2.absdiff(grey, np.full_like(grey, edge)), BORDER_LEVELS, 1, cv2.THRESH_BINARY)
    sums = (cv2.reduce(other, axis, cv2.REDUCE_SUM, dtype=cv2.CV_32S).ravel() for axis in (1, 0))
    shares = (sum_ / length for sum_, length in zip(sums, grey.shape[::-1], strict=True))
    rows, columns = (np.flatnonzero(share > 1 - BORDER_FLAT) for share in shares)
    if not len(rows) or not len(columns):
        return True
    inside = (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
    return bool(1 - inside / grey.size >= BORDER_SHARE)


PIXEL_FLAGS: dict[str, Callable[[UInt8 | Look], bool]] = {
    "text": has_text,
    "calipers": has_calipers,
    "colour": has_colour,
    "doppler": has_doppler,
    "dual_view": is_dual_view,
    "blank": is_blank,
    "letterbox": has_letterbox,
}
MEANINGS = {
    "text": "words burned in (side, position, maker's name)",
    "calipers": "measuring crosses",
    "colour": "coloured pixels: marks, Doppler, or a tint",
    "doppler": "a Doppler box, or flow in colour",
    "dual_view": "two views side by side",
    "blank": "hardly any contrast",
    "letterbox": "a flat border of a tenth of the image or more",
    "empty_mask": "its masks mark nothing",
    "several_masks": "more than one mask file",
    "odd_size": "far larger or smaller than the data set's other images",
    "odd_aspect": "far wider or narrower than the data set's other images",
}
"""Every flag, in the order in which they are listed."""


def pixel_flags(image: UInt8 | Look) -> list[str]:
    """The names of those of ``PIXEL_FLAGS`` that hold for an image, (H, W, 3) uint8, or a look at it."""
    look = Look.at(image)
    return [name for name, holds in PIXEL_FLAGS.items() if holds(look)]


def mask_flags(n_masks: int, marked: bool) -> list[str]:
    """``empty_mask`` and ``several_masks``.

    Args:
        n_masks: mask files of one image.
        marked: whether any of their pixels is set.
    """
    return ["empty_mask"] * (n_masks > 0 and not marked) + ["several_masks"] * (n_masks > 1)


def far_from_median(values: NDArray[np.float64], factor: float) -> NDArray[np.bool_]:
    """Which of one data set's sizes (or aspect ratios) are odd.

    Args:
        values: (n,) positive.
        factor: more than this many times the median, or less than the median divided by it, is odd.

    Returns:
        (n,) bool.
    """
    median = np.median(values)
    return np.asarray((values > median * factor) | (values < median / factor))


def _share(values: UInt8, least: int) -> tuple[UInt8, float]:
    """Where values are ``least`` or more (1, else 0), and how large a share of them is."""
    _, there = cv2.threshold(values, least - 1, 1, cv2.THRESH_BINARY)
    return np.asarray(there, dtype=np.uint8), cv2.countNonZero(there) / values.size


def _quantile(ordered: NDArray[Any], share: float) -> NDArray[np.float64]:
    """``np.quantile`` of values that are sorted along the last axis, to the last bit."""
    last = ordered.shape[-1] - 1
    place = last * share
    below = int(place)
    weight = place - below
    low = ordered[..., below].astype(np.float64)
    high = ordered[..., min(below + 1, last)].astype(np.float64)
    between = low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight)
    return np.asarray(between)
