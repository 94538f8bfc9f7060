"""Types shared by the decoders and their callers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; right and bottom are exclusive."""


class Decoded(NamedTuple):
    """One decoded frame, and what its file says of it."""

    pixels: UInt8
    """(H, W, 3) uint8: the whole frame."""
    tissue: Box | None = None
    """The 2-D tissue region that a DICOM header describes; None if none is described."""
    flags: tuple[str, ...] = ()
    """``assumed_range``, if the file does not state how its values become 0 to 255 (``grey_levels``)."""


MIN_SIDE = 32
"""Pixels. A tissue region with a shorter side is considered an error of the header, and is ignored."""
