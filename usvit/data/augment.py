"""Augmentation policies that keep an ultrasound image an ultrasound image.

Sound enters at the top: shadow and enhancement fall below a lesion, and "taller than wide" is
a sign of malignancy. So no policy here flips the depth axis, turns by 90 degrees or warps, and
each bound is a named constant. This is the only file that knows albumentations.
"""

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # before the import: it would ask a server for its newest version
import albumentations as A
import cv2

from usvit.errors import unknown

UInt8 = NDArray[np.uint8]
Augment = Callable[[UInt8, int], UInt8]
"""(H, W, 3) uint8 and a seed -> (H, W, 3) uint8; the same seed gives the same image."""

# The 2022 study names these four and gives no strengths; the values are ours (docs/decisions.md).
LIGHT_CROP_MIN_SIDE = 0.9
"""Smallest side of a crop, as a share of the image's: at most a tenth is lost in each direction."""
LIGHT_ROTATION_DEGREES = 10.0
"""Largest rotation: a hand's tilt of the probe, too small to turn a lesion's axis (BI-RADS orientation)."""
LIGHT_BRIGHTNESS = 0.15
"""Largest change of brightness, as a share of the full range: the gain knob."""
LIGHT_CONTRAST = 0.15
"""Largest relative change of contrast: the dynamic-range knob."""


def make_augment(policy: str, size: int) -> Augment | None:
    """The augmentation of one policy, for square images.

    Args:
        policy: ``none``, or ``light`` (the four of Gheflati & Rivaz 2022, section IV.C: light crop,
            rotation, brightness, contrast).
        size: side of the square images, in pixels; it is kept.

    Returns:
        None for ``none``.

    Raises:
        UsvitError: there is no such policy.
    """
    if policy == "none":
        return None
    if policy != "light":
        raise unknown("augmentation policy", policy, ["none", "light"])
    return _Seeded(
        A.Compose(
            [
                # A square crop of a square image keeps the aspect ratio that it came with.
                A.RandomResizedCrop(
                    size=(size, size),
                    scale=(LIGHT_CROP_MIN_SIDE**2, 1.0),
                    ratio=(1.0, 1.0),
                    interpolation=cv2.INTER_LINEAR,
                ),
                A.Rotate(
                    limit=LIGHT_ROTATION_DEGREES, interpolation=cv2.INTER_LINEAR, border_mode=cv2.BORDER_CONSTANT, p=1.0
                ),
                A.RandomBrightnessContrast(
                    brightness_limit=LIGHT_BRIGHTNESS, contrast_limit=LIGHT_CONTRAST, brightness_by_max=True, p=1.0
                ),
            ]
        )
    )


class _Seeded:
    """A class and no closure, so that it can be sent to the processes that prepare batches."""

    def __init__(self, compose: A.Compose):
        self.compose = compose

    def __call__(self, image: UInt8, seed: int) -> UInt8:
        self.compose.set_random_seed(seed % 2**32)
        return self.compose(image=image)["image"]
