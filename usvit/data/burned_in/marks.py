"""Detect marks that are burned into images: words and calipers.

Scanners draw them as flat, bright strokes with sharp edges, unlike speckle. Letters are not recognised: it is enough to
know that something was written, since a model can learn from that.

Lengths are in pixels of an image whose shorter side is at most ``REFERENCE_SIDE``; they grow with larger images.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Union

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.io import UInt8

_SQUARE = np.ones((3, 3), np.uint8)

REFERENCE_SIDE = 600
CROSS_ARM = 4
"""Pixels from the centre of a caliper's cross to the end of its shortest arm."""
CROSS_CORNER = 3
"""Pixels from the centre, along both axes, to the places without ink; strokes are thinner than twice this."""
CROSS_INK = 120
"""Least grey level of a cross, of 255."""
CROSS_STEP = 30
"""Least difference between the darkest pixel of a cross and the brightest of its four corners."""
CROSS_SPREAD = 45
"""Largest difference between the pixels of a cross: ink is flat, but crossing bright tissue is not."""
MIN_CROSSES = 2
"""Calipers come in pairs; a single cross may be a letter."""

STROKE = 9
"""Pixels. Strokes of letters are thinner, so that an opening with a square of this side removes them."""
LETTER_STEPS = (60, 80)
"""Thresholds of the brightness of letters above their surroundings, of 255; the second is for bright tissue behind
them."""
LETTER_HEIGHT = (6, 36)
"""Smallest and largest height of a letter in pixels."""
LETTER_WIDTH = 1.6
"""Largest width of a letter in heights."""
LETTER_FLAT_SHARE = 0.4
"""Least share of a letter's pixels that are about as bright as its bright level, or brighter."""
LETTER_FLATNESS, LETTER_SOFTNESS = 15, 0.25
"""Largest difference from the bright level, in grey levels and as a share of the contrast; the larger one counts, since
scaled letters have soft edges."""
LETTER_CONTRAST = 50
"""Least difference between the bright level of a letter and the median of its surroundings."""
WORD_GAP, WORD_BASE, WORD_HEIGHT, WORD_TONE = 1.0, 0.25, 0.6, 25
"""Two letters form a word if their gap is at most ``WORD_GAP`` heights, their baselines differ by at most ``WORD_BASE``
heights, the smaller one has at least ``WORD_HEIGHT`` of the height of the larger one, and their bright levels differ by
at most ``WORD_TONE`` grey levels."""


def brightness(pixels: UInt8) -> UInt8:
    """Return (H, W) uint8, the largest of the three channels, so that yellow ink counts as white."""
    red, green, blue = cv2.split(pixels)
    return np.asarray(cv2.max(cv2.max(red, green), blue), dtype=np.uint8)


class Look:
    """An image with intermediate results that several detectors need; each is computed once.

    Args:
        pixels: (H, W, 3) uint8.
    """

    def __init__(self, pixels: UInt8):
        self.pixels = pixels

    @classmethod
    def at(cls, image: Union[UInt8, "Look"]) -> "Look":
        """Wrap an array; return a ``Look`` as it is."""
        return image if isinstance(image, Look) else cls(image)

    @cached_property
    def grey(self) -> UInt8:
        """(H, W) uint8, the ``brightness``."""
        return brightness(self.pixels)

    @cached_property
    def spread(self) -> UInt8:
        """(H, W) uint8, the largest minus the smallest channel; 0 for grey."""
        red, green, blue = cv2.split(self.pixels)
        return np.asarray(cv2.subtract(self.grey, cv2.min(cv2.min(red, green), blue)), dtype=np.uint8)

    @cached_property
    def upright(self) -> NDArray[np.float64]:
        """(n, 2) centres of the upright ``crosses``."""
        return crosses(self.grey, oblique=False)

    @cached_property
    def words(self) -> NDArray[np.float64]:
        """(n, 4) left, top, width, height in pixels of letters of words (``has_text``); a letter may occur twice."""
        found = [np.empty((0, 4))]
        for _, ink in strokes_in(self.grey, round(STROKE * scale_of(self.grey)), LETTER_STEPS):
            letters = letters_in(self.grey, ink, self.upright)
            found.append(letters[_in_word(letters), :4])
        return np.concatenate(found)


def has_calipers(image: UInt8 | Look) -> bool:
    """Return whether there are measuring marks: ``MIN_CROSSES`` flat bright crosses, all upright (+) or all oblique
    (x).

    On BUSI (780 images), 123 of the 125 flagged images had calipers; in a random sample of 144, all 19 images with
    calipers were flagged. docs/how-to/audit.md has the results on phantoms of 256 px. It does not detect dotted lines
    or traces without crosses, black crosses, or crosses under 9 px across or thicker than 5 px.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    look = Look.at(image)
    return len(look.upright) >= MIN_CROSSES or len(crosses(look.grey, oblique=True)) >= MIN_CROSSES


def has_text(image: UInt8 | Look) -> bool:
    """Return whether words are burned in: two or more letter-like marks side by side on one baseline.

    On BUSI, 287 of the 288 flagged images had words or the maker's name in a corner; in a random sample of 144, 21 of
    the 22 images with words were flagged. docs/how-to/audit.md has the results on phantoms. It does not detect single
    letters, words on white tissue, dark letters on a bright box, or letters that touch or are less than 6 px high.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    return len(Look.at(image).words) > 0


def mark_boxes(image: UInt8 | Look) -> NDArray[np.int64]:
    """Return the boxes of all letters of words and all crosses of calipers, (n, 4) left, top, right, bottom in pixels.

    The limits of ``has_text`` and ``has_calipers`` apply; a letter may occur twice.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    look = Look.at(image)
    left, top, width, height = look.words.T
    boxes = [np.column_stack([left, top, left + width, top + height])]
    arm = CROSS_ARM * scale_of(look.grey) + 1
    for centres in (look.upright, crosses(look.grey, oblique=True)):
        if len(centres) >= MIN_CROSSES:
            boxes.append(np.column_stack([centres - arm, centres + arm]))
    return np.rint(np.concatenate(boxes)).astype(np.int64)


def crosses(grey: UInt8, *, oblique: bool) -> NDArray[np.float64]:
    """Find the centres of bright crosses.

    A hit-or-miss transform on grey levels compares the darkest pixel of both strokes with the brightest of the four
    places between them.

    Args:
        grey: (H, W) uint8.
        oblique: Search for x instead of +.

    Returns:
        (n, 2) x and y in pixels.
    """
    scale = scale_of(grey)
    arm, corner = round(CROSS_ARM * scale), round(CROSS_CORNER * scale)
    if oblique:
        stroke = np.eye(2 * (arm - 1) + 1, dtype=np.uint8)  # about as long as an upright stroke
        strokes = [stroke, np.ascontiguousarray(stroke[::-1])]
        between = [(-corner, 0), (corner, 0), (0, -corner), (0, corner)]
    else:
        stroke = np.ones((1, 2 * arm + 1), np.uint8)
        strokes = [stroke, stroke.T]
        between = [(down, across) for down in (-corner, corner) for across in (-corner, corner)]
    darkest = cv2.min(*(cv2.erode(grey, stroke) for stroke in strokes))
    brightest = cv2.max(*(cv2.dilate(grey, stroke) for stroke in strokes))
    padded = cv2.copyMakeBorder(grey, corner, corner, corner, corner, cv2.BORDER_REPLICATE)
    height, width = grey.shape
    places = [padded[corner + y : corner + y + height, corner + x : corner + x + width] for y, x in between]
    corners = cv2.max(cv2.max(places[0], places[1]), cv2.max(places[2], places[3]))
    # 8-bit differences saturate at 0, as needed here.
    found = (darkest >= CROSS_INK) & (cv2.subtract(darkest, corners) >= CROSS_STEP)
    found &= cv2.subtract(brightest, darkest) <= CROSS_SPREAD
    if not found.any():
        return np.empty((0, 2))
    return np.asarray(components(found.astype(np.uint8))[2][1:])


def components(binary: UInt8) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """Label 8-connected components; return OpenCV's labels, statistics and centroids, where 0 is the background.

    The block-based algorithm (Grana et al. 2010) takes a third of the time of OpenCV's default.
    """
    found = cv2.connectedComponentsWithStatsWithAlgorithm(binary, 8, cv2.CV_32S, cv2.CCL_BBDT)
    return np.asarray(found[1]), np.asarray(found[2]), np.asarray(found[3])


def letters_in(
    grey: UInt8,
    ink: UInt8,
    crosses: NDArray[np.float64],
    *,
    contrast: float = LETTER_CONTRAST,
    softness: float = LETTER_SOFTNESS,
    flatness: float = LETTER_FLATNESS,
    flat_share: float = LETTER_FLAT_SHARE,
) -> NDArray[np.float64]:
    """Find marks that could be letters.

    The marks are the 8-connected components of ``ink``. Only their outlines are traced in the whole image, and a mark
    is filled only if it has the size of a letter, which takes half the time of labelling every pixel.

    Args:
        grey: (H, W) uint8.
        ink: (H, W) uint8, not 0 where a mark may be.
        crosses: (n, 2) centres of crosses; marks around them are not letters.
        contrast, softness, flatness, flat_share: See the constants ``LETTER_...``, which are the defaults.

    Returns:
        (n, 5) left, top, width, height in pixels, and bright level of each mark.
    """
    scale = scale_of(grey)
    low, high = (height * scale for height in LETTER_HEIGHT)
    letters = []
    for outline in outlines(ink):
        left, top, width, height = cv2.boundingRect(outline)
        if not (low <= height <= high and 2 <= width <= LETTER_WIDTH * height):
            continue
        if ((crosses >= (left, top)) & (crosses <= (left + width, top + height))).all(axis=1).any():
            continue
        around = (slice(max(0, top - 2), top + height + 2), slice(max(0, left - 2), left + width + 2))
        component = cv2.connectedComponents(ink[around], connectivity=8)[1]
        x, y = outline[0, 0]
        own = component == component[y - around[0].start, x - around[1].start]
        values = np.sort(grey[around][own])
        level = int(values[int(0.9 * (len(values) - 1))])
        outside = np.sort(grey[around][cv2.dilate(own.astype(np.uint8), _SQUARE) == 0])
        above = level - int(outside[len(outside) // 2]) if len(outside) else level
        edge = level - max(flatness, softness * above)
        if above >= contrast and (values >= edge).mean() >= flat_share:
            letters.append((left, top, width, height, level))
    return np.array(letters, dtype=np.float64).reshape(-1, 5)


def outlines(ink: UInt8) -> list[NDArray[np.int32]]:
    """Trace the outer outline of each 8-connected component, including those in holes of others.

    Args:
        ink: (H, W) uint8, not 0 where there is ink.

    Returns:
        For each component (n, 1, 2) x and y of the corners of its outline, which are pixels of the component.
    """
    found, tree = cv2.findContours(ink, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if tree is None:
        return []
    # The parent of a hole's outline is the component around it.
    return [np.asarray(one, np.int32) for one, of_hole in zip(found, tree[0, :, 3] >= 0, strict=True) if not of_hole]


def _in_word(letters: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return (n,) bool, True for each letter that has another one beside it."""
    left, top, width, height, level = letters.T[:, :, None]
    taller = np.maximum(height, height.T)
    gap = left.T - (left + width)
    pairs = (
        (left < left.T)
        & (gap >= -0.3 * taller)  # slanted letters overlap a little
        & (gap <= WORD_GAP * taller)
        & (np.abs((top + height) - (top + height).T) <= np.maximum(1, WORD_BASE * taller))
        & (np.minimum(height, height.T) >= WORD_HEIGHT * taller)
        & (np.abs(level - level.T) <= WORD_TONE)
    )
    return np.asarray(pairs.any(axis=0) | pairs.any(axis=1))


def strokes_in(grey: UInt8, side: int, steps: tuple[int, ...]) -> Iterator[tuple[int, UInt8]]:
    """Yield each step with (H, W) uint8, 1 in bright strokes narrower than ``side`` pixels and 0 elsewhere.

    A stroke is at least ``step`` grey levels brighter than the opening of the image with a square.
    """
    background = cv2.morphologyEx(grey, cv2.MORPH_OPEN, np.ones((side, side), np.uint8))
    above = cv2.subtract(grey, background)
    for step in steps:
        yield step, np.asarray(cv2.threshold(above, step - 1, 1, cv2.THRESH_BINARY)[1], dtype=np.uint8)


def scale_of(grey: UInt8) -> float:
    """Return the factor by which lengths in this image exceed those of the constants; at least 1."""
    return max(1.0, min(grey.shape) / REFERENCE_SIDE)
