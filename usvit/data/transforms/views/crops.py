"""Crops of upstream images, which make a square of a picture of any shape.

A crop draws a ``Window`` from the size of a picture alone; ``cut`` computes its pixels with PIL, and ``gpu_crops``
those of a batch on its device.
"""

import math
import random
from typing import NamedTuple, Protocol

import torch
from PIL import Image
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision.transforms import functional as F

from usvit.config.views import ViewsConfig

_SRC_PADDING = 4
"""Pixels of reflection padding on each side (DeiT III)."""
_INCEPTION_ATTEMPTS = 100
"""Boxes that are drawn until one fits, TensorFlow's default."""
BICUBIC = F.InterpolationMode.BICUBIC

Range = tuple[float, float]


class Window(NamedTuple):
    """What a crop shows of a picture: a box, resized, of which S x S pixels are kept. All lengths are in pixels."""

    left: int
    top: int
    width: int
    height: int
    """The box in the picture."""
    resized_width: int
    resized_height: int
    """Size to which the box is resized."""
    from_left: int
    from_top: int
    """First pixel of the result in the resized box. Pixels outside, negative ones too, are those reflected at its
    edge, which is not repeated."""
    bicubic: bool
    """Interpolation: bicubic or bilinear, both with antialiasing."""


class Crop(Protocol):
    """Draws the window of a picture from Python's global generator."""

    def window(self, width: int, height: int) -> Window:
        """Draw the window of a picture of this size."""


def make_crop(config: ViewsConfig, image_size: int) -> Crop:
    """Make the crop that ``config.crop`` names.

    Args:
        config: Settings of the views.
        image_size: Side of the result, S, in pixels.
    """
    if config.crop == "rrc":
        return _RandomResizedCrop(image_size, config.scale, config.ratio, config.interpolation)
    if config.crop == "inception":
        return InceptionCrop(image_size, config.scale, config.ratio, config.interpolation)
    if config.crop == "squash_crop":
        return _SquashCrop(image_size, config.train_crop, config.interpolation)
    if config.crop == "src":
        return _SimpleRandomCrop(image_size, config.interpolation)
    return _Squash(image_size, config.interpolation)


def cut(image: Image.Image, window: Window, image_size: int) -> Image.Image:
    """Return the S x S pixels of a window, as PIL and torchvision compute them.

    Args:
        image: Picture of mode RGB.
        window: The window, drawn for a picture of this size.
        image_size: S in pixels.
    """
    left, top, width, height, across, down, x, y, bicubic = window
    how = interpolation_mode("bicubic" if bicubic else "bilinear")
    image = F.resized_crop(image, top, left, height, width, [down, across], how)
    beyond = max(-x, -y, x + image_size - across, y + image_size - down, 0)
    if beyond:
        image, x, y = F.pad(image, [beyond], padding_mode="reflect"), x + beyond, y + beyond
    return image.crop((x, y, x + image_size, y + image_size))


class _RandomResizedCrop:
    """Resizes a random box to S x S, drawn as timm and torchvision draw it.

    Args:
        image_size: S in pixels.
        scale: Range of the box's share of the picture's area.
        ratio: Range of the box's width over height.
        interpolation: ``bicubic``, ``bilinear`` or ``random``.
    """

    def __init__(self, image_size: int, scale: Range, ratio: Range, interpolation: str):
        self.image_size, self.scale, self.ratio, self.interpolation = image_size, scale, ratio, interpolation

    def window(self, width: int, height: int) -> Window:
        return resized(self.image_size, self.box(width, height), self.interpolation)

    def box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Draw a box of a picture of this size: left, top, width and height in pixels."""
        blank = torch.empty(height, width, device="meta")  # timm reads its size alone
        top, left, down, across = RandomResizedCropAndInterpolation.get_params(blank, self.scale, self.ratio)
        return left, top, across, down


class InceptionCrop(_RandomResizedCrop):
    """Resizes a random box to S x S, drawn as TensorFlow's ``sample_distorted_bounding_box`` draws it.

    The code of ViT and AugReg (vision_transformer, big_vision) calls it without an object to cover. It differs from the
    random resized crop of torchvision and timm in four points. The height of the box is uniform, not its area, so that
    small boxes are more frequent. The aspect ratio is uniform, not its logarithm. The height is limited to what fits in
    the picture, where the other is drawn again. After 100 boxes outside the range of areas the result is the whole
    picture, not its centre. As in TensorFlow, the box never touches the right or lower border unless it spans the
    picture.
    """

    def box(self, width: int, height: int) -> tuple[int, int, int, int]:
        for _ in range(_INCEPTION_ATTEMPTS):
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


class _SquashCrop:
    """Squashes the picture to a square of side S / ``train_crop``, and crops a random S x S (Kolesnikov et al. 2020).

    Unlike a random resized crop of a fixed size, it is random for every aspect ratio.
    """

    def __init__(self, image_size: int, train_crop: float, interpolation: str):
        self.image_size, self.squashed = image_size, round(image_size / train_crop)
        self.interpolation = interpolation

    def window(self, width: int, height: int) -> Window:
        bicubic = _is_bicubic(self.interpolation)
        room = self.squashed - self.image_size
        top, left = random.randint(0, room), random.randint(0, room)
        return Window(0, 0, width, height, self.squashed, self.squashed, left, top, bicubic)


class _SimpleRandomCrop:
    """Resizes the short side to S, pads 4 px by reflection, and crops a random square (DeiT III; thesis, section
    6.2.3).

    The crop is random along both axes, as in the authors' code (deit/augment.py). "Along the x-axis" in the thesis
    would not fit the padding of all sides.
    """

    def __init__(self, image_size: int, interpolation: str):
        self.image_size, self.interpolation = image_size, interpolation

    def window(self, width: int, height: int) -> Window:
        bicubic = _is_bicubic(self.interpolation)
        size, short = self.image_size, min(width, height)
        across, down = (int(size * width / short), int(size * height / short))  # as torchvision rounds it
        top = random.randint(0, down + 2 * _SRC_PADDING - size) - _SRC_PADDING
        left = random.randint(0, across + 2 * _SRC_PADDING - size) - _SRC_PADDING
        return Window(0, 0, width, height, across, down, left, top, bicubic)


class _Squash:
    """Stretches the whole picture to S x S, whatever its aspect ratio."""

    def __init__(self, image_size: int, interpolation: str):
        self.image_size, self.interpolation = image_size, interpolation

    def window(self, width: int, height: int) -> Window:
        return resized(self.image_size, (0, 0, width, height), self.interpolation)


def resized(image_size: int, box: tuple[int, int, int, int], interpolation: str) -> Window:
    """Return the window of a box (left, top, width, height) that is resized to S x S."""
    return Window(*box, image_size, image_size, 0, 0, _is_bicubic(interpolation))


def _is_bicubic(interpolation: str) -> bool:
    """Return whether the interpolation is bicubic; ``random`` is drawn from Python's global generator."""
    return interpolation_mode(interpolation) is BICUBIC


def interpolation_mode(name: str) -> F.InterpolationMode:
    return F.InterpolationMode(random.choice(("bilinear", "bicubic")) if name == "random" else name)
