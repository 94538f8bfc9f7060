"""Views of upstream images on the CPU: crop, RandAugment or AutoAugment, and colour changes."""

import random
from collections.abc import Callable
from typing import Literal

import numpy as np
from PIL import Image, ImageOps
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision.transforms import functional as F

from usvit.config import ViewsConfig
from usvit.data.io import UInt8
from usvit.data.transforms.views.color import recolor
from usvit.data.transforms.views.randaugment import make_policy
from usvit.data.transforms.views.rng import numbers, seeded

SRC_PADDING = 4
"""Pixels of reflection padding on each side (DeiT III)."""

TestResize = Literal["short_side", "squash", "pad"]
Crop = Callable[[Image.Image], Image.Image]


class Views:
    """Changes one picture at random: a picture of mode RGB and a seed become (S, S, 3) uint8. It can be pickled.

    The same seed gives the same bytes; the global generators of Python and numpy keep their state. The changes are
    crop, RandAugment or AutoAugment, then flip, 3-Augment and jitter unless ``DeviceViews`` computes these. Its results
    are the same except for rounding and for the blur: PIL's blur differs from a Gaussian by a few grey levels.

    Args:
        config: Settings of the views.
        image_size: S in pixels.
        on_device: Leave flip, 3-Augment and jitter to ``DeviceViews``.
    """

    def __init__(self, config: ViewsConfig, image_size: int, *, on_device: bool):
        self.config, self.on_device = config, on_device
        self._crop = _make_crop(config, image_size)
        self._policy = make_policy(config)

    def __call__(self, image: Image.Image, seed: int) -> UInt8:
        with seeded(seed):
            image = self._crop(image)
            if self._policy is not None:
                image = self._policy(image)
        if not self.on_device:
            image = recolor(image, numbers(seed), self.config)
        return np.array(image)


def test_view(
    image: Image.Image,
    image_size: int,
    test_crop: float,
    *,
    resize: TestResize = "short_side",
    interpolation: str = "bicubic",
) -> UInt8:
    """Resize a test image to S / ``test_crop`` and cut out the central square of S x S pixels.

    Args:
        image: Picture of mode RGB.
        image_size: S in pixels.
        test_crop: In (0, 1]; 0.875 resizes to 256 for S = 224.
        resize: ``short_side`` keeps the aspect ratio; ``squash`` stretches both sides; ``pad`` keeps the aspect ratio,
            adds black borders, and cuts nothing off.
        interpolation: ``bicubic`` or ``bilinear``, both with antialiasing.

    Returns:
        (S, S, 3) uint8.
    """
    if resize == "pad":
        filter_ = Image.Resampling.BICUBIC if interpolation == "bicubic" else Image.Resampling.BILINEAR
        return np.array(ImageOps.pad(image, (image_size, image_size), filter_, color=0))
    side = int(image_size / test_crop)
    resized = F.resize(image, [side, side] if resize == "squash" else [side], _interpolation(interpolation))
    return np.array(F.center_crop(resized, [image_size]))


test_view.__test__ = False  # type: ignore[attr-defined]  # keeps pytest from collecting it


def _make_crop(config: ViewsConfig, image_size: int) -> Crop:
    if config.crop == "rrc":
        return RandomResizedCropAndInterpolation(image_size, config.scale, config.ratio, config.interpolation)
    if config.crop == "src":
        return SimpleRandomCrop(image_size, config.interpolation)
    return Squash(image_size, config.interpolation)


class SimpleRandomCrop:
    """Resizes the short side to S, pads 4 px by reflection, and crops a random square (DeiT III; thesis, section
    6.2.3).

    The crop is random along both axes, as in the authors' code (deit/augment.py). "Along the x-axis" in the thesis
    would not fit the padding of all sides.
    """

    def __init__(self, image_size: int, interpolation: str):
        self.image_size, self.interpolation = image_size, interpolation

    def __call__(self, image: Image.Image) -> Image.Image:
        size = self.image_size
        image = F.resize(image, [size], _interpolation(self.interpolation))
        image = F.pad(image, [SRC_PADDING], padding_mode="reflect")
        top, left = random.randint(0, image.height - size), random.randint(0, image.width - size)
        return image.crop((left, top, left + size, top + size))


class Squash:
    """Stretches the whole picture to S x S, whatever its aspect ratio."""

    def __init__(self, image_size: int, interpolation: str):
        self.image_size, self.interpolation = image_size, interpolation

    def __call__(self, image: Image.Image) -> Image.Image:
        return F.resize(image, [self.image_size, self.image_size], _interpolation(self.interpolation))


def _interpolation(name: str) -> F.InterpolationMode:
    return F.InterpolationMode(random.choice(("bilinear", "bicubic")) if name == "random" else name)
