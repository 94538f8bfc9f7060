"""Flags of an image: properties that a model should not learn from, or that a person should check before use."""

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.burned_in import Look, components, has_calipers, has_text
from usvit.data.io import UInt8

COLOUR_SPREAD, COLOUR_SHARE = 20, 1e-4
"""A pixel is coloured if its channels differ by this many grey levels; an image, if this share of its pixels is."""
BOX_SPREAD, BOX_SIDE = 12, 0.12
"""A Doppler box is a thin coloured frame, often faint; its sides are at least this share of the image's sides."""
FLOW_SPREAD, FLOW_AREA = 60, 50
"""Flow is strongly red or blue, in one patch of at least this many pixels."""
TINT_SHARE = 0.5
"""With a larger share of coloured pixels, the whole picture is tinted and does not show Doppler."""
SEAM_STEP, SEAM_RATIO, SEAM_ROWS = 12, 2.5, 0.65
"""Least grey-level step across a seam; least ratio to the median step; least share of rows with the step."""
SEAM_PLACE, SEAM_DEPTH = (0.3, 0.7), 0.5
"""Columns in which a seam is searched, as shares of the width, and largest depth as a share of the height; deep rows
are often dark everywhere."""
SEAM_MIN_SIDE = 200
"""Pixels. Images with a shorter side are not examined, because their shadows have edges as sharp as a seam."""
BLANK_RANGE = 24
"""Least number of grey levels between the 1st and the 99th percentile of an image that is not blank."""
BORDER_LEVELS, BORDER_FLAT, BORDER_SHARE = 3, 0.95, 0.1
"""A row or column belongs to a flat border if the second number, as a share of it, is within the first number of grey
levels of the edge; the rest may be text. A letterbox covers at least the third number, as a share of the image."""
SIZE_FACTOR, ASPECT_FACTOR = 2.0, 1.5
"""Factors from the data set's median, in either direction, from which the side (geometric mean of height and width) and
the ratio of width to height are odd."""


def has_colour(image: UInt8 | Look) -> bool:
    """Return whether there are coloured pixels: coloured marks, Doppler, or a tinted picture.

    On BUSI, it flags exactly the 15 images with visible colour.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    return _share(Look.at(image).spread, COLOUR_SPREAD)[1] >= COLOUR_SHARE


def has_doppler(image: UInt8 | Look) -> bool:
    """Return whether Doppler is shown: a patch of red or blue flow, or the coloured frame of its box.

    On BUSI, it flags exactly the 11 images with a box, and not the 4 with coloured marks only.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
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
    """Return whether two views are side by side: in most rows the grey level jumps at one column near the middle.

    Of 800 pairs of BUSI images side by side, with a gap of 0, 1, 4 or 12 px, it flagged 95.5% (91% of those without a
    gap), and none of BUSI's 780 images, which show single views. It does not detect views one above the other, or a
    seam away from the middle.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    grey = Look.at(image).grey
    height, width = grey.shape
    if min(height, width) < SEAM_MIN_SIDE:
        return False
    # A median filter removes thin lines (frames, calipers) and keeps the jump. It needs two more rows below.
    rows = round(SEAM_DEPTH * height)
    upper = cv2.medianBlur(grey[: rows + 2], 5)[:rows]
    jumps = cv2.transpose(cv2.absdiff(upper[:, 3:], upper[:, :-3]))
    # NumPy sorts rows of 16-bit integers several times faster than it partitions columns.
    step = _quantile(np.sort(jumps.astype(np.int16), axis=1), 1 - SEAM_ROWS)
    first, last = (round(place * width) for place in SEAM_PLACE)
    return bool(step[first:last].max() >= max(SEAM_STEP, SEAM_RATIO * float(np.median(step))))


def is_blank(image: UInt8 | Look) -> bool:
    """Return whether the image is blank, that is, its grey levels span less than ``BLANK_RANGE``.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    every_other = np.ascontiguousarray(Look.at(image).grey[::2, ::2])
    counts = cv2.calcHist([every_other], [0], None, [256], [0, 256]).ravel().astype(np.int64)
    ordered = np.repeat(np.arange(256, dtype=np.uint8), counts)
    return bool(_quantile(ordered, 0.99) - _quantile(ordered, 0.01) < BLANK_RANGE)


def has_letterbox(image: UInt8 | Look) -> bool:
    """Return whether a flat border of any grey level covers ``BORDER_SHARE`` of the image or more.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
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
    "assumed_range": "more than 8 bits per value, and the file does not state how many are in use",
    "empty_mask": "its masks mark nothing",
    "several_masks": "more than one mask file",
    "odd_size": "far larger or smaller than the data set's other images",
    "odd_aspect": "far wider or narrower than the data set's other images",
}
"""Meaning of every flag, in the order of listing."""


def pixel_flags(image: UInt8 | Look) -> list[str]:
    """Return the names of the ``PIXEL_FLAGS`` that hold for an image.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    look = Look.at(image)
    return [name for name, holds in PIXEL_FLAGS.items() if holds(look)]


def mask_flags(n_masks: int, marked: bool) -> list[str]:
    """Return ``empty_mask`` and ``several_masks``, if they hold.

    Args:
        n_masks: Number of mask files of one image.
        marked: Whether any of their pixels is set.
    """
    return ["empty_mask"] * (n_masks > 0 and not marked) + ["several_masks"] * (n_masks > 1)


def far_from_median(values: NDArray[np.float64], factor: float) -> NDArray[np.bool_]:
    """Return which sizes or aspect ratios of one data set are odd.

    Args:
        values: (n,) positive values.
        factor: A value is odd above the median times this factor, or below the median divided by it.

    Returns:
        (n,) bool.
    """
    median = np.median(values)
    return np.asarray((values > median * factor) | (values < median / factor))


def _share(values: UInt8, least: int) -> tuple[UInt8, float]:
    """Return 1 where values are ``least`` or more and 0 elsewhere, and the share of ones."""
    _, there = cv2.threshold(values, least - 1, 1, cv2.THRESH_BINARY)
    return np.asarray(there, dtype=np.uint8), cv2.countNonZero(there) / values.size


def _quantile(ordered: NDArray[Any], share: float) -> NDArray[np.float64]:
    """Compute ``np.quantile`` of values that are sorted along the last axis; the result is equal to the last bit."""
    last = ordered.shape[-1] - 1
    place = last * share
    below = int(place)
    weight = place - below
    low = ordered[..., below].astype(np.float64)
    high = ordered[..., min(below + 1, last)].astype(np.float64)
    between = low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight)
    return np.asarray(between)
