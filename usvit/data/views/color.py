"""What is drawn of ``numbers`` and computed on one picture: the flip, 3-Augment and colour jitter, by PIL.

``device.py`` computes the same for a batch of tensors.
"""

from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from usvit.config import ViewsConfig
from usvit.data.views import chance

GRAY, SOLARIZE, BLUR = range(3)
"""3-Augment: exactly one of them (DeiT III: Touvron et al. 2022; thesis, section 6.2.3)."""
SIGMA = (0.1, 2.0)
"""px, of the blur. The thesis gives no strengths: these are of the authors' code, deit/augment.py."""
SOLARIZE_FROM = 128
"""Grey levels from here are inverted (the same code: PIL's default)."""
ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
ORDERS = tuple(permutations(range(len(ENHANCERS))))
"""Colour jitter makes its three changes in random order, as torchvision's."""


def recolor(image: Image.Image, numbers: NDArray[np.float64], config: ViewsConfig) -> Image.Image:
    """Flip, 3-Augment and jitter of one picture, in this order, those that the configuration asks for.

    Args:
        image: mode RGB.
        numbers: of ``chance.numbers``.
    """
    if numbers[chance.HFLIP] < config.hflip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if config.policy == "three_augment":
        choice = int(numbers[chance.CHOICE] * 3)
        if choice == GRAY:
            image = image.convert("L").convert("RGB")
        elif choice == SOLARIZE:
            image = ImageOps.solarize(image, SOLARIZE_FROM)
        else:
            sigma = SIGMA[0] + (SIGMA[1] - SIGMA[0]) * numbers[chance.SIGMA]
            image = image.filter(ImageFilter.GaussianBlur(float(sigma)))
    if config.color_jitter:
        low, high = jitter_range(config.color_jitter)
        for which in ORDERS[int(numbers[chance.ORDER] * len(ORDERS))]:
            factor = low + (high - low) * numbers[chance.BRIGHTNESS + which]
            image = ENHANCERS[which](image).enhance(float(factor))
    return image


def jitter_range(strength: float) -> tuple[float, float]:
    """Of the factor of brightness, contrast and saturation; 1 changes nothing (torchvision's ColorJitter)."""
    return max(0.0, 1 - strength), 1 + strength
