"""Crops of upstream images, which make a square of a picture of any shape."""

import math
import random
from collections.abc import Callable

from PIL import Image
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision.transforms import functional as F

from usvit.config import ViewsConfig

SRC_PADDING = 4
"""Pixels of reflection padding on each side (DeiT III)."""
INCEPTION_ATTEMPTS = 100
"""Boxes that are drawn until one fits, TensorFlow's default."""
BICUBIC = F.InterpolationMode.BICUBIC

Crop = Callable[[Image.Image], Image.Image]
Range = tuple[float, float]


def make_crop(config: ViewsConfig, image_size: int) -> Crop:
    """Make the crop that ``config.crop`` names; it draws from Python's global generator.

    Args:
        config: Settings of the views.
        image_size: Side of the result, S, in pixels.
    """
    if config.crop == "rrc":
        return RandomResizedCropAndInterpolation(image_size, config.scale, config.ratio, config.interpolation)
    if config.crop == "inception":
        return InceptionCrop(image_size, config.scale, config.ratio, config.interpolation)
    if config.crop == "squash_crop":
        return SquashCrop(image_size, config.train_crop, config.interpolation)
    if config.crop == "src":
        return SimpleRandomCrop(image_size, config.interpolation)
    return Squash(image_size, config.interpolation)


class InceptionCrop:
    """Resizes a random box to S x S, drawn as TensorFlow's ``sample_distorted_bounding_box`` draws it.

    The code of ViT and AugReg (vision_transformer, big_vision) calls it without an object to cover. It differs from the
    random resized crop of torchvision and timm in four points. The height of the box is uniform, not its area, so that
    small boxes are more frequent. The aspect ratio is uniform, not its logarithm. The height is limited to what fits in
    the picture, where the other is drawn again. After 100 boxes outside the range of areas the result is the whole
    picture, not its centre. As in TensorFlow, the box never touches the right or lower border unless it spans the
    picture.

    Args:
        image_size: S in pixels.
        scale: Range of the box's share of the picture's area.
        ratio: Range of the box's width over height.
        interpolation: ``bicubic``, ``bilinear`` or ``random``.
    """

    def __init__(self, image_size: int, scale: Range, ratio: Range, interpolation: str):
        self.image_size, self.scale, self.ratio, self.interpolation = image_size, scale, ratio, interpolation

    def __call__(self, image: Image.Image) -> Image.Image:
        left, top, width, height = self.box(image.width, image.height)
        size = [self.image_size, self.image_size]
        return F.resized_crop(image, top, left, height, width, size, interpolation_mode(self.interpolation))

    def box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Draw a box of a picture of this size: left, top, width and height in pixels."""
        for _ in range(INCEPTION_ATTEMPTS):
            size = self._size(width, height, random.uniform(*self.ratio))
            if size is not None:
                left = random.randrange(width - size[0]) if size[0] < width else 0
                top = random.randrange(height - size[1]) if size[1] < height else 0
                return left, top, *size
        return 0, 0, width, height

    def _size(self, width: int, height: int, ratio: float) -> tuple[int, int] | None:
        """Draw the width and height of a box of this aspect ratio; None if the area is then out of range."""
        smallest, largest = (share * width * height for share in self.scale)
        tallest = round(math.sqrt(largest / ratio))
        if round(tallest * ratio) > width:  # the tallest box that is not wider than the picture
            tallest = int((width + 0.5) / ratio)
            tallest -= round(tallest * ratio) > width
        tallest = min(tallest, height)
        lowest = min(round(math.sqrt(smallest / ratio)), tallest)
        drawn = random.randint(lowest, tallest)
        if round(drawn * ratio) * drawn < smallest:  # by rounding
            drawn += 1
        if round(drawn * ratio) * drawn > largest:
            drawn -= 1
        across = round(drawn * ratio)
        fits = 0 < across <= width and 0 < drawn <= height and smallest <= across * drawn <= largest
        return (across, drawn) if fits else None


class SquashCrop:
    """Squashes the picture to a square of side S / ``train_crop``, and crops a random S x S (Kolesnikov et al. 2020).

    Unlike a random resized crop of a fixed size, it is random for every aspect ratio.
    """

    def __init__(self, image_size: int, train_crop: float, interpolation: str):
        self.image_size, self.squashed = image_size, round(image_size / train_crop)
        self.interpolation = interpolation

    def __call__(self, image: Image.Image) -> Image.Image:
        size = self.image_size
        image = F.resize(image, [self.squashed, self.squashed], interpolation_mode(self.interpolation))
        top, left = random.randint(0, self.squashed - size), random.randint(0, self.squashed - size)
        return image.crop((left, top, left + size, top + size))


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
        image = F.resize(image, [size], interpolation_mode(self.interpolation))
        image = F.pad(image, [SRC_PADDING], padding_mode="reflect")
        top, left = random.randint(0, image.height - size), random.randint(0, image.width - size)
        return image.crop((left, top, left + size, top + size))


class Squash:
    """Stretches the whole picture to S x S, whatever its aspect ratio."""

    def __init__(self, image_size: int, interpolation: str):
        self.image_size, self.interpolation = image_size, interpolation

    def __call__(self, image: Image.Image) -> Image.Image:
        return F.resize(image, [self.image_size, self.image_size], interpolation_mode(self.interpolation))


def interpolation_mode(name: str) -> F.InterpolationMode:
    return F.InterpolationMode(random.choice(("bilinear", "bicubic")) if name == "random" else name)
