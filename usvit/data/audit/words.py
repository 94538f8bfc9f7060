"""Whether a picture may show words, asked before it is shown to others: better no picture than one with a name.

``marks.has_text`` is made for audits, where a false alarm costs the reader's time: it looks for bright letters. Here
letters may also be grey, dark, coloured or small. How many are still missed, and how many false alarms that costs, is
measured in docs/explanation/burned-in-text.md.
"""

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.audit.marks import STROKE, Look, has_text, letters_in, scale_of

UInt8 = NDArray[np.uint8]

STEPS = (10, 16, 24, 40, 64)
"""How much letters differ from their surroundings, of 255."""
FLATNESS = 0.35
"""... and by how much of that their own pixels may differ: scaled letters have soft edges."""
ROW = 3
"""Letters side by side that make a word. Two are enough where they are bright (``has_text``); speckle has two, too."""


def may_show_words(image: UInt8 | Look) -> bool:
    """Whether there may be a word of ``ROW`` letters or more, in any tone or colour, or ``has_text``.

    Args:
        image: (H, W, 3) uint8, or a look at it.
    """
    look = Look.at(image)
    return has_text(look) or any(_has_row(plane) for plane in _planes(look))


def _planes(look: Look) -> Iterator[UInt8]:
    """Pictures in which letters are bright, (h, w) uint8: bright, dark and coloured ones; small ones enlarged."""
    for plane in (look.grey, 255 - look.grey, look.spread):
        yield plane
        yield np.asarray(cv2.resize(plane, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


def _has_row(plane: UInt8) -> bool:
    side = round(STROKE * scale_of(plane)) + 2
    background = cv2.morphologyEx(plane, cv2.MORPH_OPEN, np.ones((side, side), np.uint8))
    above = cv2.subtract(plane, background)
    for step in STEPS:
        ink = np.asarray(cv2.threshold(above, step - 1, 1, cv2.THRESH_BINARY)[1], dtype=np.uint8)
        found = letters_in(plane, ink, np.empty((0, 2)), contrast=step, softness=FLATNESS, flatness=4, flat_share=0.5)
        if len(found) >= ROW and longest_row(found) >= ROW:
            return True
    return False


def longest_row(letters: NDArray[np.float64]) -> int:
    """The most letters that follow each other on one line.

    Args:
        letters: (n, 5) as ``marks.letters_in`` gives them.
    """
    order = np.argsort(letters[:, 0], kind="stable")
    left, top, width, height, level = letters[order].T
    bottom = top + height
    longest = np.ones(len(order), dtype=np.int64)
    for at in range(1, len(order)):
        near = slice(max(0, at - 400), at)
        taller = np.maximum(height[near], height[at])
        gap = left[at] - (left[near] + width[near])
        follows = (
            (gap >= -0.15 * taller)
            & (gap <= 0.9 * taller)
            & (np.abs(bottom[near] - bottom[at]) <= np.maximum(1, 0.15 * taller))
            & (np.minimum(height[near], height[at]) >= 0.65 * taller)
            & (np.abs(level[near] - level[at]) <= 14)
        )
        if follows.any():
            longest[at] = 1 + longest[near][follows].max()
    return int(longest.max(initial=0))
