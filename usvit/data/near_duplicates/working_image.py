"""The working image: the textured part of a picture in grey, at a fixed size.

Exported frames lie on a canvas or beside a menu, or were coloured by a colour map. Flat areas and text are cut off
here, and known colour maps are inverted, so that tissue appears at nearly the same size in all working images.
"""

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from usvit.data.burned_in import Look
from usvit.data.io import UInt8

SIDE = 256
"""Longer side of the working image in pixels."""
_MAX_SQUARE_ASPECT = 1.12
"""Ratio of the longer side to the shorter one up to which an image counts as square."""
_WIDE_ASPECT = 1.7
"""Ratio of width to height to which a square image is stretched. Lesions are wider than tall, and so are the pictures
that data sets squeeze into squares: cut-out lesions (ratio 1.4 to 2), and two views side by side."""
_SEARCH_SIDE = 512
"""Longer side in pixels of the image in which the textured part is searched; letters are still separate there."""
MIN_SLOPE = 0.75
"""Grey levels per pixel. Flat areas of a screen have smaller slopes, unless noise was added; speckle nearly always has
larger ones."""
_MIN_RELATIVE_SLOPE = 0.2
"""Least slope relative to the mean slope around: JPEG artefacts between letters are small beside the letters."""
_TEXTURED_WINDOW = 25
"""Side of a window in pixels of the search image; larger than the height of a line of text."""
MIN_TEXTURED = 0.75
"""Least share of pixels in that window that have a slope. Lines of text have up to a half."""
_MIN_AREA = 0.01
"""Least share of the search image that is textured. Below it, the whole picture is used."""
_MISSED_LETTERS = 2.0
"""Heights of a letter to both sides of it in which the word may continue."""
_COLOUR_MAPS = ("JET", "TURBO", "HOT", "VIRIDIS", "INFERNO", "MAGMA", "PLASMA", "RAINBOW", "PARULA", "CIVIDIS", "COOL")
"""Names of OpenCV's colour maps, which include matplotlib's."""
_COLOUR_STEP = 8
"""Step in which the levels of a colour are quantised."""
_MIN_COLOUR = 40
"""Difference between the largest and the smallest channel from which a pixel counts as coloured."""
_MIN_COLOURED = 0.5
"""Share of coloured pixels from which a colour map is searched."""
_MAX_COLOUR_ERROR = 12.0
"""Maximum median distance in RGB from a colour map. The other maps of the list are farther away than 20."""
_COLOUR_SAMPLE = 1000
"""Number of pixels that are compared with the colour maps."""

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class WorkingImage:
    """The part of a picture that is described."""

    grey: UInt8
    """(h, w) uint8; the longer side has ``SIDE`` pixels."""
    letters: Float32
    """(n, 4) left, top, right, bottom of letters of words and the space beside them, in pixels of ``grey``; they may
    lie outside of it."""

    def stretched(self) -> "WorkingImage":
        """Return the working image stretched to a square, or a square one stretched to ``_WIDE_ASPECT``."""
        height, width = self.grey.shape
        is_square = max(height, width) <= _MAX_SQUARE_ASPECT * min(height, width)
        size = (SIDE, round(SIDE / _WIDE_ASPECT) if is_square else SIDE)
        grey = np.asarray(cv2.resize(self.grey, size, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)
        factors = np.array([size[0] / width, size[1] / height] * 2, dtype=np.float32)
        return WorkingImage(grey, self.letters * factors)


def working_image(image: UInt8 | Look) -> WorkingImage:
    """Cut out the textured part in grey, and scale its longer side to ``SIDE`` pixels.

    Args:
        image: (H, W, 3) uint8 RGB, or a ``Look`` at it.
    """
    look = Look.at(image)
    grey = _grey(look.pixels)
    rows, columns = _textured_part(grey)
    part = _scaled(grey[rows, columns], SIDE)
    left, top, width, height = look.words.T
    beside = _MISSED_LETTERS * height
    boxes = np.stack([left - beside, top, left + width + beside, top + height], axis=1)
    boxes -= [columns.start, rows.start] * 2
    factors = np.array([part.shape[1] / (columns.stop - columns.start), part.shape[0] / (rows.stop - rows.start)] * 2)
    return WorkingImage(part, (boxes * factors).astype(np.float32))


def textured(image: UInt8, min_slope: float, window: int) -> Float32:
    """Return (h, w) the share of each pixel's surroundings, ``window`` x ``window``, that is neither flat nor text."""
    # Integers, eight times the slope per pixel, take a third of the time of floats.
    x, y = (cv2.Sobel(image, cv2.CV_16S, *axes, ksize=3) for axes in ((1, 0), (0, 1)))
    slope = np.abs(x) + np.abs(y)
    around = cv2.boxFilter(slope, cv2.CV_32F, (window, window))
    lively = (slope > np.maximum(8 * min_slope, _MIN_RELATIVE_SLOPE * around)).astype(np.uint8)
    count = cv2.boxFilter(lively, cv2.CV_32F, (window, window), normalize=False, borderType=cv2.BORDER_CONSTANT)
    rows, columns = (_inside(length, window) for length in image.shape)
    return np.asarray(count / (rows[:, None] * columns), dtype=np.float32)


def _inside(length: int, window: int) -> Float32:
    """Return (length,) the number of pixels of a centred window that lie inside the image."""
    place, half = np.arange(length), window // 2
    return (np.minimum(place + half, length - 1) - np.maximum(place - half, 0) + 1).astype(np.float32)


def _scaled(image: UInt8, side: int) -> UInt8:
    height, width = image.shape
    scale = side / max(height, width)
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    return np.asarray(resized, dtype=np.uint8)


def _textured_part(grey: UInt8) -> tuple[slice, slice]:
    """Return the bounding box of everything textured, without flat canvas, menus and text around it."""
    height, width = grey.shape
    scale = min(1.0, _SEARCH_SIDE / max(height, width))
    small = _scaled(grey, round(max(height, width) * scale))
    # The centre of a window is marked; the texture reaches half the side of the window beyond it.
    middle = (textured(small, MIN_SLOPE, _TEXTURED_WINDOW) > MIN_TEXTURED).astype(np.uint8)
    found = np.asarray(cv2.dilate(middle, np.ones((_TEXTURED_WINDOW // 2,) * 2, np.uint8)))
    if found.mean() < _MIN_AREA:
        return slice(0, height), slice(0, width)
    y, x = np.flatnonzero(found.any(axis=1)), np.flatnonzero(found.any(axis=0))
    fy, fx = height / small.shape[0], width / small.shape[1]
    return slice(int(y[0] * fy), int(np.ceil((y[-1] + 1) * fy))), slice(int(x[0] * fx), int(np.ceil((x[-1] + 1) * fx)))


def _grey(pixels: UInt8) -> UInt8:
    """Convert to grey; if a known colour map was applied, return the values before it."""
    grey = np.asarray(cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    flat = pixels.reshape(-1, 3)
    sample = flat[:: max(1, len(flat) // _COLOUR_SAMPLE)].astype(np.int16)
    if (np.ptp(sample, axis=1) > _MIN_COLOUR).mean() < _MIN_COLOURED:
        return grey
    errors = [np.median(tree.query(sample)[0]) for tree, _ in _colour_maps()]
    if min(errors) > _MAX_COLOUR_ERROR:
        return grey
    red, green, blue = (pixels // _COLOUR_STEP).reshape(-1, 3).astype(np.int64).T
    values = _colour_maps()[int(np.argmin(errors))][1]
    return values[red, green, blue].reshape(grey.shape)


@cache
def _colour_maps() -> list[tuple[KDTree, UInt8]]:
    """Return the 256 colours of each map, and the nearest value for every colour in steps of ``_COLOUR_STEP``."""
    ramp = np.arange(256, dtype=np.uint8)[:, None]
    middle = np.arange(0, 256, _COLOUR_STEP) + _COLOUR_STEP / 2
    colours = np.stack(np.meshgrid(middle, middle, middle, indexing="ij"), axis=-1)
    maps = []
    for name in _COLOUR_MAPS:
        tree = KDTree(cv2.applyColorMap(ramp, getattr(cv2, f"COLORMAP_{name}"))[:, 0, ::-1].astype(np.float64))
        maps.append((tree, tree.query(colours)[1].astype(np.uint8)))
    return maps
