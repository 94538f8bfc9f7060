"""Controlled changes of an image, as another setting of the scanner or another export would have made them.

Unlike an augmentation, a change draws nothing: the same image and the same strength give the same pixels. Its strength
is stated in the unit that the user of a scanner knows. A change that an image does not allow, such as calipers without
the outline of a lesion, returns None.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.burned_in import Look, mark_boxes
from usvit.data.io import UInt8
from usvit.data.phantom import text_line
from usvit.data.transforms.ultrasound_effects import with_depth_gain

_DYNAMIC_RANGE_DB = 60.0
"""Decibels from black to white. Scanners compress 50 to 70 dB into the grey scale; the image does not say how many."""
CALIPER_ARM, CALIPER_INK = 4 / 256, 255
"""Half the width of a caliper's cross, as a share of the image's height, and its grey level; those of the phantom."""
TEXT = "BREAST L 2 o'clock  7.5 MHz"
"""What is burned in: side, place and frequency, and no name."""

Mask = NDArray[np.bool_] | None


@dataclass(frozen=True)
class ControlledChange:
    """One change at one strength.

    Attributes:
        name: the kind of change, a key of ``CHANGES``.
        strength: its strength in words, unique within the kind.
        apply: function of an image, (H, W, 3) uint8, and its lesion mask, (H, W) bool or None; it returns the changed
            image, of any size, or None if the image does not allow the change.
    """

    name: str
    strength: str
    apply: Callable[[UInt8, Mask], UInt8 | None]


def gain(image: UInt8, decibels: float) -> UInt8:
    """Raise the overall gain; the image is log-compressed, so all echoes become brighter by the same grey level.

    Grey level 0 stays 0: such pixels lie outside the sector, or hold no echo.
    """
    levels = np.clip(np.arange(256) + round(255 * decibels / _DYNAMIC_RANGE_DB), 0, 255).astype(np.uint8)
    levels[0] = 0
    return np.asarray(cv2.LUT(image, levels), dtype=np.uint8)


def depth(image: UInt8, factor: float) -> UInt8:
    """Set another depth of the field, in an image of the same size: deeper makes everything smaller.

    The probe stays at the top and the middle column in the middle. At a smaller depth the bottom and the sides leave
    the image; at a larger depth they are black, since nothing is known about the tissue there.
    """
    height, width = image.shape[:2]
    matrix = np.array([[1 / factor, 0, (1 - 1 / factor) * (width - 1) / 2], [0, 1 / factor, 0]])
    how = cv2.INTER_AREA if factor > 1 else cv2.INTER_CUBIC
    if factor > 1:  # warpAffine does not average over the pixels that it skips
        small = cv2.resize(image, (max(1, round(width / factor)), max(1, round(height / factor))), interpolation=how)
        out = np.zeros_like(image)
        left = (width - small.shape[1]) // 2
        out[: small.shape[0], left : left + small.shape[1]] = small
        return out
    return np.asarray(cv2.warpAffine(image, matrix, (width, height), flags=how), dtype=np.uint8)


def crop(image: UInt8, share: float) -> UInt8:
    """Cut off this share of the height at the top and bottom, and of the width at both sides."""
    height, width = image.shape[:2]
    down, across = round(share * height), round(share * width)
    return np.ascontiguousarray(image[down : height - down, across : width - across])


def jpeg(image: UInt8, quality: int) -> UInt8:
    """Compress and decompress by JPEG of this quality, 1 to 95, with the chroma subsampling of most software."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer).convert("RGB"))


def resize(image: UInt8, share: float) -> UInt8:
    """Reduce to this share of both sides and enlarge again, as an export at a lower resolution does."""
    height, width = image.shape[:2]
    small = (max(1, round(width * share)), max(1, round(height * share)))
    reduced = Image.fromarray(image).resize(small, Image.Resampling.BICUBIC)
    return np.asarray(reduced.resize((width, height), Image.Resampling.BICUBIC))


def add_text(image: UInt8, corner: str) -> UInt8:
    """Burn in a line of scanner text at the top left or the bottom right."""
    canvas, line = Image.fromarray(image), text_line(TEXT, image.shape[0])
    margin = round(4 * image.shape[0] / 256)
    place = (margin, margin)
    if corner != "top left":
        place = (max(0, canvas.width - line.width - margin), max(0, canvas.height - line.height - margin))
    canvas.paste((255, 255, 255), place, line)
    return np.asarray(canvas)


def add_calipers(image: UInt8, mask: Mask, pairs: int) -> UInt8 | None:
    """Burn in crosses at the ends of the lesion's longest diameter and, with two pairs, of the perpendicular one.

    Returns:
        None without a lesion.
    """
    if mask is None or not mask.any():
        return None
    points = cv2.convexHull(np.argwhere(mask)[:, ::-1].astype(np.int32))[:, 0].astype(np.float64)  # (n, 2) x, y
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    first, last = np.unravel_index(int(apart.argmax()), apart.shape)
    ends = [points[first], points[last]]
    along = ends[1] - ends[0]
    if pairs == 2 and (length := float(np.hypot(*along))) > 0:
        across = np.array([-along[1], along[0]]) / length
        place = points @ across
        ends += [points[int(place.argmin())], points[int(place.argmax())]]
    out, arm = image.copy(), max(4, round(CALIPER_ARM * image.shape[0]))
    for x, y in np.rint(ends).astype(int):
        cv2.line(out, (x - arm, y), (x + arm, y), (CALIPER_INK,) * 3)
        cv2.line(out, (x, y - arm), (x, y + arm), (CALIPER_INK,) * 3)
    return out


def remove_marks(image: UInt8) -> UInt8 | None:
    """Paint over the letters and crosses that ``usvit.data.burned_in`` detects, from the pixels around them.

    Dotted lines between calipers are not detected and stay.

    Returns:
        None if no mark is detected.
    """
    boxes = mark_boxes(Look(image))
    if not len(boxes):
        return None
    hole = np.zeros(image.shape[:2], np.uint8)
    for left, top, right, bottom in boxes:
        hole[max(top - 2, 0) : bottom + 2, max(left - 2, 0) : right + 2] = 255
    return np.asarray(cv2.inpaint(image, hole, 3, cv2.INPAINT_TELEA), dtype=np.uint8)


def _of_pixels(function: Callable[[UInt8, float], UInt8], value: float) -> Callable[[UInt8, Mask], UInt8]:
    return lambda image, mask: function(image, value)


def _strengths(
    name: str, function: Callable[[UInt8, float], UInt8], values: dict[str, float]
) -> tuple[ControlledChange, ...]:
    return tuple(ControlledChange(name, words, _of_pixels(function, value)) for words, value in values.items())


def _depth_gain(image: UInt8, exponent: float) -> UInt8:
    return with_depth_gain(image, np.float32(exponent))


def _jpeg(image: UInt8, quality: float) -> UInt8:
    return jpeg(image, int(quality))


CHANGES: dict[str, tuple[ControlledChange, ...]] = {
    "gain": _strengths("gain", gain, {"-6 dB": -6, "-3 dB": -3, "+3 dB": 3, "+6 dB": 6}),
    "depth-gain": _strengths("depth-gain", _depth_gain, {"-0.4": -0.4, "+0.4": 0.4}),
    "depth": _strengths("depth", depth, {"x 0.85": 0.85, "x 1.15": 1.15, "x 1.3": 1.3}),
    "crop": _strengths("crop", crop, {"5 %": 0.05, "10 %": 0.10}),
    "jpeg": _strengths("jpeg", _jpeg, {"quality 90": 90, "quality 70": 70, "quality 40": 40}),
    "resize": _strengths("resize", resize, {"x 0.75": 0.75, "x 0.5": 0.5, "x 0.25": 0.25}),
    "text": (
        ControlledChange("text", "on, top left", lambda image, mask: add_text(image, "top left")),
        ControlledChange("text", "on, bottom right", lambda image, mask: add_text(image, "bottom right")),
    ),
    "calipers": (
        ControlledChange("calipers", "on, 1 pair", lambda image, mask: add_calipers(image, mask, 1)),
        ControlledChange("calipers", "on, 2 pairs", lambda image, mask: add_calipers(image, mask, 2)),
    ),
    "marks-off": (ControlledChange("marks-off", "text and calipers off", lambda image, mask: remove_marks(image)),),
}
"""Kind of change -> the change at each strength."""
