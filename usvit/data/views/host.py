"""From a picture to the network's square on the host: what every pre-training's images go through."""

import random
from collections.abc import Callable

import numpy as np
from PIL import Image
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision.transforms import functional as F

from usvit.config import ViewsConfig
from usvit.data.images import UInt8
from usvit.data.views.chance import numbers, seeded
from usvit.data.views.color import recolor
from usvit.data.views.randaugment import make_policy

SRC_PADDING = 4
"""px on each side (DeiT III)."""
BICUBIC = F.InterpolationMode.BICUBIC

Crop = Callable[[Image.Image], Image.Image]


class Views:
    """One image at random: (W x H picture of mode RGB, seed) -> (S, S, 3) uint8; picklable, for worker processes.

    The same seed gives the same bytes; Python's and numpy's global generators are left as they were. Crop, RandAugment
    or AutoAugment, then the flip, 3-Augment and jitter, unless ``DeviceViews`` makes these. They are then the same, but
    for rounding, and for the blur: PIL's is near a Gaussian, within a few grey levels.

    Args:
        config: what is done.
        image_size: S, in pixels.
        on_device: flip, 3-Augment and jitter are left to ``DeviceViews``.
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


def test_view(image: Image.Image, image_size: int, test_crop: float) -> UInt8:
    """A test image: its short side is brought to S / ``test_crop``, bicubic, and the middle square is cut out.

    Args:
        image: mode RGB.
        image_size: S, in pixels.
        test_crop: in (0, 1]: 0.875 is 256 to 224.

    Returns:
        (S, S, 3) uint8.
    """
    resized = F.resize(image, [int(image_size / test_crop)], BICUBIC)
    return np.array(F.center_crop(resized, [image_size]))


test_view.__test__ = False  # type: ignore[attr-defined]  # its name is no test's


def _make_crop(config: ViewsConfig, image_size: int) -> Crop:
    if config.crop == "rrc":
        return RandomResizedCropAndInterpolation(image_size, config.scale, config.ratio, config.interpolation)
    if config.crop == "src":
        return SimpleRandomCrop(image_size, config.interpolation)
    return Squash(image_size, config.interpolation)


class SimpleRandomCrop:
    """Short side to S, 4 px of reflection on all sides, a random square (DeiT III; thesis, section 6.2.3).

    Both its axes are random: "along the x-axis" in the thesis does not fit the padding of all sides, and the authors'
    code (deit/augment.py) does so, too.
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
    """The whole picture, whatever its aspect ratio, to S x S."""

    def __init__(self, image_size: int, interpolation: str):
        self.image_size, self.interpolation = image_size, interpolation

    def __call__(self, image: Image.Image) -> Image.Image:
        return F.resize(image, [self.image_size, self.image_size], _interpolation(self.interpolation))


def _interpolation(name: str) -> F.InterpolationMode:
    return F.InterpolationMode(random.choice(("bilinear", "bicubic")) if name == "random" else name)
