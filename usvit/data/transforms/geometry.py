"""Crop, turn, shift and mirror an image in one resampling that keeps shapes, the depth axis and the lesion.

A view is a square window onto a square image. The mapping is a similarity, so that circles stay circles. It never turns
far and never flips top to bottom, so that the order of depths is kept.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.io import UInt8

LESION_KEPT = 0.9
"""Least share of a known lesion's area that a view shows. Our choice: the classes differ in margin and shape."""
CELLS = 32
"""A lesion is stored as CELLS x CELLS shares of area. At 224 pixels a cell has 7 x 7 pixels, and an image takes 1
kB."""
_TRIES = 10
"""Number of views drawn before the whole image is used (for a lesion at the edge, or as large as the image)."""


@dataclass(frozen=True)
class View:
    """Placement of the window; lengths are shares of the side of the image."""

    side: float = 1.0
    """Side of the window; below 1 the image is enlarged."""
    degrees: float = 0.0
    """Clockwise rotation of the window; the picture turns the other way."""
    right: float = 0.0
    down: float = 0.0
    """Shift of the centre of the window from the centre of the image, to the right and down."""
    mirrored: bool = False
    """True if left and right are exchanged."""

    def of(self, image: UInt8) -> UInt8:
        """Return the content of the window by bilinear interpolation; it is black outside of the image.

        Args:
            image: (S, S, 3), or (S, S) such as ``lesion_cells``, whose cells are the pixels of a smaller image.

        Returns:
            The window in the shape of the image.
        """
        size = len(image)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return np.asarray(cv2.warpAffine(image, self.matrix(size), (size, size), flags=flags), dtype=np.uint8)

    def labels_of(self, labels: UInt8, outside: int = 0) -> UInt8:
        """Return the labels, (S, S), in the window by the nearest pixel; they are ``outside`` beyond the image."""
        size, flags = len(labels), cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        turned = cv2.warpAffine(labels, self.matrix(size), (size, size), flags=flags, borderValue=outside)
        return np.asarray(turned, dtype=np.uint8)

    def matrix(self, size: int) -> NDArray[np.float64]:
        """Return the (2, 3) matrix from a pixel (x, y, 1) of the window to one of an image of ``size`` pixels."""
        middle = np.full(2, (size - 1) / 2)
        linear = self._linear()
        offset = middle + size * np.array([self.right, self.down]) - linear @ middle
        return np.column_stack([linear, offset])

    def shown(self, lesion: UInt8) -> float:
        """Return a lower bound of the share of a lesion's area inside the window.

        Only cells that lie entirely in the window are counted.

        Args:
            lesion: (CELLS, CELLS) uint8 as returned by ``lesion_cells``.

        Returns:
            A share in [0, 1]; 1 without a lesion.
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
    """Bounds of randomly drawn views."""

    min_side: float = 1.0
    """Smallest side of the window, which may lie anywhere in the image."""
    degrees: float = 0.0
    """Largest rotation to either side."""
    right: float = 0.0
    down: float = 0.0
    """Largest additional shift to either side, by which a part of the window leaves the image."""
    flip: float = 0.0
    """Probability of a left-right mirror image."""

    def draw(self, rng: np.random.Generator, lesion: UInt8 | None = None) -> View:
        """Draw a random view that shows at least ``LESION_KEPT`` of the lesion, if one is given."""
        mirrored = bool(rng.random() < self.flip)
        for _ in range(_TRIES):
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
    """Reduce a lesion's mask to the share of each cell that it covers.

    Args:
        mask: (S, S) bool.

    Returns:
        (CELLS, CELLS) uint8, 255 for a cell that is covered entirely, 0 only for a cell without any of the lesion.
    """
    share = cv2.resize(mask.astype(np.float32), (CELLS, CELLS), interpolation=cv2.INTER_AREA)
    return np.ceil(np.asarray(share) * 255).clip(0, 255).astype(np.uint8)
