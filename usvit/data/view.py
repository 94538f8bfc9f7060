"""Crop, turn, shift and mirror as one resampling that keeps shapes, the depth axis and the lesion.

A view is a square window onto a square image. It maps by a similarity, so that a circle stays a
circle; it never turns far and never flips top to bottom, so that what was deeper stays deeper.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]

LESION_KEPT = 0.9
"""Smallest share of a known lesion's area that a view shows. Ours: margin and shape are what the classes differ in."""
CELLS = 32
"""A lesion is kept as CELLS x CELLS shares of its area: at 224 pixels a cell is 7 x 7, and an image costs 1 kB."""
TRIES = 10
"""Views drawn for one image before the whole image is shown (a lesion at the edge, or as large as the image)."""


@dataclass(frozen=True)
class View:
    """Where the window lies; lengths are shares of the image's side."""

    side: float = 1.0
    """Of the window: below 1 the image is enlarged."""
    degrees: float = 0.0
    """By which the window is turned, clockwise; the picture turns the other way."""
    right: float = 0.0
    down: float = 0.0
    """Of the window's centre from the image's."""
    mirrored: bool = False
    """Left and right exchanged."""

    def of(self, image: UInt8) -> UInt8:
        """(S, S, 3) -> what the window shows, (S, S, 3), bilinear; beyond the image it is black."""
        size = len(image)
        middle = np.full(2, (size - 1) / 2)
        linear = self._linear()
        offset = middle + size * np.array([self.right, self.down]) - linear @ middle
        matrix = np.column_stack([linear, offset])  # from a pixel of the window to one of the image
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return np.asarray(cv2.warpAffine(image, matrix, (size, size), flags=flags), dtype=np.uint8)

    def shown(self, lesion: UInt8) -> float:
        """At least this share of a lesion's area is in the window.

        Only cells that lie in it entirely are counted, so that the true share is never smaller.

        Args:
            lesion: (CELLS, CELLS) as ``lesion_cells`` gives it.

        Returns:
            In [0, 1]; 1 where there is no lesion.
        """
        rows, columns = np.nonzero(lesion)
        if not len(rows):
            return 1.0
        linear = self._linear()
        cells = (np.stack([columns, rows]) + 0.5) / CELLS - 0.5 - [[self.right], [self.down]]
        in_window = np.linalg.inv(linear) @ cells
        half_a_cell = np.abs(linear).sum(axis=1).max() / self.side**2 / (2 * CELLS)
        whole = np.abs(in_window).max(axis=0) + half_a_cell <= 0.5 + 1e-9
        weights = lesion[rows, columns].astype(float)
        return float(weights[whole].sum() / weights.sum())

    def _linear(self) -> NDArray[np.float64]:
        cos, sin = np.cos(np.radians(self.degrees)), np.sin(np.radians(self.degrees))
        mirror = -1.0 if self.mirrored else 1.0
        return self.side * np.array([[cos * mirror, -sin], [sin * mirror, cos]])


@dataclass(frozen=True)
class ViewBounds:
    """From which views one is drawn."""

    min_side: float = 1.0
    """Smallest window that is cut out; it lies anywhere in the image."""
    degrees: float = 0.0
    """Largest turn, to either side."""
    right: float = 0.0
    down: float = 0.0
    """Largest shift, to either side, in which a part of the window leaves the image."""
    flip: float = 0.0
    """Probability of a left-right mirror image."""

    def draw(self, rng: np.random.Generator, lesion: UInt8 | None = None) -> View:
        """A random view that shows at least ``LESION_KEPT`` of the lesion, where one is known."""
        mirrored = bool(rng.random() < self.flip)
        for _ in range(TRIES):
            side = float(np.sqrt(rng.uniform(self.min_side**2, 1)))
            slack = (1 - side) / 2
            view = View(
                side=side,
                degrees=float(rng.uniform(-1, 1)) * self.degrees,
                right=float(rng.uniform(-slack, slack) + rng.uniform(-1, 1) * self.right),
                down=float(rng.uniform(-slack, slack) + rng.uniform(-1, 1) * self.down),
                mirrored=mirrored,
            )
            if lesion is None or view.shown(lesion) >= LESION_KEPT:
                return view
        return View(mirrored=mirrored)


def lesion_cells(mask: NDArray[np.bool_]) -> UInt8:
    """A lesion's mask in small: what share of each cell it covers.

    Args:
        mask: (S, S) bool.

    Returns:
        (CELLS, CELLS) uint8, 255 for a cell that is covered entirely; 0 only where nothing of it is.
    """
    share = cv2.resize(mask.astype(np.float32), (CELLS, CELLS), interpolation=cv2.INTER_AREA)
    return np.ceil(np.asarray(share) * 255).clip(0, 255).astype(np.uint8)
