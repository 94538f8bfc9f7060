"""Convert values of more than 8 bits to 8 bits, also where the file does not state how many of its bits are in use.

Many programs store the 12 bits of a scanner in files of 16 bits. The format then claims 65,536 levels, of which 4,096
are in use, and the picture would become nearly black. The rule, for all frames of a file together:

1. What the file states counts: packed samples of 12 bits, the ``sBIT`` of a PNG if no value exceeds it, the largest
   value of a PGM, the precision of a JPEG 2000 file.
2. Otherwise integers have as many bits as the largest value of the file needs, rounded up to an even number of at least
   8. Floating-point values up to 1 have the range 0 to 1; larger ones count as integers of at most 16 bits.
3. Where that is fewer bits than the format has, and for every floating-point file, the range is an assumption, and the
   file is flagged ``assumed_range``. The brightest value of such a file is at least a quarter of white, so a picture
   that uses a small part of 16 bits on purpose becomes brighter than it was meant to be.
4. Values below 0, values that are not finite, and floating-point values beyond 65,535 have no range that could be
   assumed. The file is refused with the code ``unknown_range``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage
from usvit.data.io.types import UInt8

ASSUMED_RANGE = "assumed_range"
"""Flag of a file whose range of values was assumed."""


@dataclass(frozen=True)
class DeepFrame:
    """The values of a frame that has more than 8 bits."""

    values: NDArray[Any]
    """(H, W) grey or (H, W, 3) RGB: integers, or floating-point values."""
    bits: int
    """Bits that the format has for a value."""
    stated: int | None = None
    """Largest value that the file states to be possible; None if it states none."""
    white_is_zero: bool = False

    @property
    def is_floating(self) -> bool:
        return self.values.dtype.kind == "f"


def largest_value(path: Path, frame: DeepFrame) -> float:
    """Return the largest value of a frame.

    Raises:
        BadImage: Values are negative or not finite (``unknown_range``).
    """
    low, high = float(frame.values.min()), float(frame.values.max())  # NaN if any value is NaN
    if not 0 <= low <= high < float("inf"):
        raise _unknown(path, "some of its values are negative or not finite")
    return high


def white_level(path: Path, frame: DeepFrame, largest: float) -> tuple[float, bool]:
    """Return the value of full brightness, and whether it is an assumption.

    Args:
        path: The file, for errors.
        frame: Any frame of the file.
        largest: Largest value of all frames.

    Raises:
        BadImage: No range can be assumed (``unknown_range``).
    """
    if frame.stated is not None and largest <= frame.stated:
        return frame.stated, False
    if frame.is_floating and largest <= 1:
        return 1.0, True
    if frame.is_floating and largest > 65535:
        raise _unknown(path, "its floating-point values exceed 65,535")
    used = max(8, int(np.ceil(largest)).bit_length())
    used += used % 2
    return 2**used - 1, frame.is_floating or used < frame.bits


def to_8_bits(frame: DeepFrame, white: float) -> UInt8:
    """Scale values from 0 to ``white`` to the range 0 to 255, rounded; (H, W) or (H, W, 3) uint8."""
    values, sign = frame.values, -1 if frame.white_is_zero else 1
    if values.dtype == np.uint16:  # a table is ten times faster
        levels = np.arange(65536)
        shown: UInt8 = _scaled(levels, white, sign).take(values)
        return shown
    return _scaled(values, white, sign)


def _scaled(values: NDArray[Any], white: float, sign: int) -> UInt8:
    part = values * (sign / white)
    if sign < 0:
        part += 1
    part *= 255
    return np.rint(part, out=part).clip(0, 255).astype(np.uint8)


def _unknown(path: Path, why: str) -> BadImage:
    reason = f"it does not state the range of its grey values, and {why}; save it with 8 bits"
    return BadImage(path, reason, "unknown_range")
