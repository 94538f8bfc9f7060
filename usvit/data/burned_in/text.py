"""Detect possible words in a picture before it is shown to others, since they may include a patient's name.

``marks.has_text`` is meant for audits, where false alarms cost time, and detects bright letters only. Here letters may
also be grey, dark, coloured or small. docs/explanation/burned-in-text.md reports the rates of missed words and of false
alarms.
"""

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.burned_in.marks import STROKE, Look, has_text, letters_in, scale_of, strokes_in
from usvit.data.io import UInt8

STEPS = (10, 16, 24, 40, 64)
"""Thresholds of the difference between letters and their surroundings, of 255."""
_FLATNESS = 0.35
"""Share of that difference by which the pixels of a letter may differ; scaled letters have soft edges."""
_ROW = 3
"""Least number of letters in a word. Two suffice for bright letters (``has_text``), but speckle resembles two, too."""


def may_show_words(image: UInt8 | Look) -> bool:
    """Return whether there may be a word of at least ``_ROW`` letters in any tone or colour, or ``has_text`` holds.

    Args:
        image: (H, W, 3) uint8, or a ``Look`` at it.
    """
    look = Look.at(image)
    return has_text(look) or any(_has_row(plane) for plane in _planes(look))


def _planes(look: Look) -> Iterator[UInt8]:
    """Yield (h, w) uint8 pictures in which bright, dark or coloured letters are bright, each also enlarged."""
    for plane in (look.grey, 255 - look.grey, look.spread):
        yield plane
        yield np.asarray(cv2.resize(plane, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


def _has_row(plane: UInt8) -> bool:
    for step, ink in strokes_in(plane, round(STROKE * scale_of(plane)) + 2, STEPS):
        found = letters_in(plane, ink, np.empty((0, 2)), contrast=step, softness=_FLATNESS, flatness=4, flat_share=0.5)
        if len(found) >= _ROW and longest_row(found) >= _ROW:
            return True
    return False


def longest_row(letters: NDArray[np.float64]) -> int:
    """Return the largest number of letters that follow each other on one line.

    Args:
        letters: (n, 5) as returned by ``marks.letters_in``.
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
