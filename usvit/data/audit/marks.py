"""Marks that people burn into images: words and calipers.

Scanners draw them as flat, bright, sharp-edged strokes, which speckle never is. No letter is
read: what matters is that something was written, for a model learns that, too.

Lengths are those of an image whose shorter side is ``REFERENCE_SIDE`` px or less, and grow with it.
"""

from functools import cached_property
from typing import Union

import cv2
import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
_SQUARE = np.ones((3, 3), np.uint8)

REFERENCE_SIDE = 600
CROSS_ARM = 4
"""px from the centre of a caliper's cross to the shortest arm's end."""
CROSS_CORNER = 3
"""px from the centre, along both axes, to where there must be no ink: strokes are thinner than twice this."""
CROSS_INK = 120
"""A cross is at least so bright, of 255."""
CROSS_STEP = 30
"""... and its darkest pixel so much brighter than the brightest of its four corners."""
CROSS_SPREAD = 45
"""... and its pixels differ by no more: ink is flat, crossing bright tissue is not."""
MIN_CROSSES = 2
"""Calipers come in pairs; one cross alone may be a letter."""

STROKE = 9
"""px: strokes of letters are thinner, so that an opening with a square of this side removes them."""
LETTER_STEPS = (60, 80)
"""How much brighter than their surroundings letters are, of 255; bright tissue behind them asks for the second."""
LETTER_HEIGHT = (6, 36)
"""px, smallest and greatest."""
LETTER_WIDTH = 1.6
"""Greatest width, in heights."""
LETTER_FLAT_SHARE = 0.4
"""So large a share of a letter's pixels is about as bright as its bright level, or brighter,"""
LETTER_FLATNESS, LETTER_SOFTNESS = 15, 0.25
"""... that is, darker by no more grey levels, or by no more of its contrast: scaled letters have soft edges."""
LETTER_CONTRAST = 50
"""Bright level of a letter above the median of its surroundings."""
WORD_GAP, WORD_BASE, WORD_HEIGHT, WORD_TONE = 1.0, 0.25, 0.6, 25
"""Two letters make a word if their gap is no more heights, their baselines differ by no more heights, the
smaller is at least this part of the larger, and their bright levels differ by no more grey levels."""


def brightness(pixels: UInt8) -> UInt8:
    """(H, W) uint8: the largest of the three channels, so that yellow ink counts as white."""
    red, green, blue = cv2.split(pixels)
    return np.asarray(cv2.max(cv2.max(red, green), blue), dtype=np.uint8)


class Look:
    """An image, and what several questions about it need, computed once.

    Args:
        pixels: (H, W, 3) uint8.
    """

    def __init__(self, pixels: UInt8):
        self.pixels = pixels

    @classmethod
    def at(cls, image: Union[UInt8, "Look"]) -> "Look":
        """An array is looked at; a look is passed on."""
        return image if isinstance(image, Look) else cls(image)

    @cached_property
    def grey(self) -> UInt8:
        """(H, W), ``brightness``."""
        return brightness(self.pixels)

    @cached_property
    def spread(self) -> UInt8:
        """(H, W), largest less smallest channel; 0 is grey."""
        red, green, blue = cv2.split(self.pixels)
        return np.asarray(cv2.subtract(self.grey, cv2.min(cv2.min(red, green), blue)), dtype=np.uint8)

    @cached_property
    def upright(self) -> NDArray[np.float64]:
        """(n, 2), the upright ``crosses``."""
        return crosses(self.grey, oblique=False)

    @cached_property
    def words(self) -> NDArray[np.float64]:
        """(n, 4) left, top, width, height in px of the letters of words (``has_text``); a letter may be there twice."""
        side = round(STROKE * scale_of(self.grey))
        background = cv2.morphologyEx(self.grey, cv2.MORPH_OPEN, np.ones((side, side), np.uint8))
        above = cv2.subtract(self.grey, background)
        found = [np.empty((0, 4))]
        for step in LETTER_STEPS:
            ink = np.asarray(cv2.threshold(above, step - 1, 1, cv2.THRESH_BINARY)[1], dtype=np.uint8)
            letters = letters_in(self.grey, ink, self.upright)
            found.append(letters[_in_word(letters), :4])
        return np.concatenate(found)


def has_calipers(image: UInt8 | Look) -> bool:
    """Whether there are measuring marks: ``MIN_CROSSES`` bright, flat crosses, all upright (+) or all oblique (x).

    Measured on BUSI (780 images): of 125 flagged, 123 had calipers; of 19 with calipers in a random sample of
    144, all were flagged. On phantoms of 256 px: docs/how-to/audit.md. Not seen: dotted lines alone, a trace
    without crosses, crosses under 9 px across or thicker than 5 px, black ones.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    look = Look.at(image)
    return len(look.upright) >= MIN_CROSSES or len(crosses(look.grey, oblique=True)) >= MIN_CROSSES


def has_text(image: UInt8 | Look) -> bool:
    """Whether words are burned in: two letter-like marks or more, side by side on one baseline.

    Measured on BUSI: of 288 flagged, 287 had words or the maker's name in a corner; of 22 with words in a random
    sample of 144, 21 were flagged. On phantoms: docs/how-to/audit.md. Not seen: single letters, words on white
    tissue, dark letters on a bright box, letters that touch or are less than 6 px high.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    return len(Look.at(image).words) > 0


def crosses(grey: UInt8, *, oblique: bool) -> NDArray[np.float64]:
    """Centres of bright crosses.

    A hit-or-miss transform in grey levels: the darkest pixel of both strokes against the brightest of the
    four places between them.

    Args:
        grey: (H, W) uint8.
        oblique: look for x instead of +.

    Returns:
        (n, 2) x and y in px.
    """
    scale = scale_of(grey)
    arm, corner = round(CROSS_ARM * scale), round(CROSS_CORNER * scale)
    if oblique:
        stroke = np.eye(2 * (arm - 1) + 1, dtype=np.uint8)  # as long as an upright one of this arm, about
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
    # Differences in 8 bits stop at 0, which is what is wanted.
    found = (darkest >= CROSS_INK) & (cv2.subtract(darkest, corners) >= CROSS_STEP)
    found &= cv2.subtract(brightest, darkest) <= CROSS_SPREAD
    if not found.any():
        return np.empty((0, 2))
    return np.asarray(components(found.astype(np.uint8))[2][1:])


def components(binary: UInt8) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """What touches at a side or a corner, as OpenCV's labels, statistics and centroids; 0 is the background.

    By the block-based algorithm (Grana et al. 2010): with statistics it takes a third of the default's time.
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
    """(n, 5) left, top, width, height in px and bright level of each mark that could be a letter.

    ``contrast`` and what follows it: as the constants of these names, which are the defaults.

    The marks are the 8-connected components of ``ink``. Their outlines alone are traced in the whole image, and a mark
    is filled only where its size is a letter's: half the time of labelling every pixel.
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
    """The outer outline of each 8-connected component, also of those that lie in another one's hole.

    Args:
        ink: (H, W) uint8, not 0 where there is ink.

    Returns:
        Each (n, 1, 2): x and y of corners of the outline, all of them pixels of the component.
    """
    found, tree = cv2.findContours(ink, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if tree is None:
        return []
    # A hole's outline has the component around it as its parent.
    return [np.asarray(one, np.int32) for one, of_hole in zip(found, tree[0, :, 3] >= 0, strict=True) if not of_hole]


def _in_word(letters: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) whether each letter has another one beside it."""
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


def scale_of(grey: UInt8) -> float:
    return max(1.0, min(grey.shape) / REFERENCE_SIDE)
