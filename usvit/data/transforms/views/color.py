"""Flip, 3-Augment and colour jitter of one picture with PIL; the random choices come from ``rng.numbers``.

``gpu.py`` computes the same for a batch of tensors.
"""

from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from usvit.config.views import ViewsConfig
from usvit.data.transforms.views import rng

SIGMA = (0.1, 2.0)
"""Standard deviation of the blur in pixels. The thesis gives no strengths; these are from the authors' code,
deit/augment.py."""
SOLARIZE_FROM = 128
"""Grey levels from here are inverted (the same code: PIL's default)."""
_ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
ORDERS = tuple(permutations(range(len(_ENHANCERS))))
"""Orders of the three changes of colour jitter, of which one is drawn, as in torchvision."""


def recolor(image: Image.Image, numbers: NDArray[np.float64], config: ViewsConfig) -> Image.Image:
    """Apply flip, 3-Augment and jitter in this order, as far as the configuration asks for them.

    3-Augment applies exactly one of its parts (DeiT III: Touvron et al. 2022; thesis, section 6.2.2).

    Args:
        image: Picture of mode RGB.
        numbers: Random numbers, as returned by ``rng.numbers``.
        config: Settings of the views.
    """
    if numbers[rng.HFLIP] < config.hflip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if config.policy == "three_augment":
        part = config.three_augment[int(numbers[rng.CHOICE] * len(config.three_augment))]
        if part == "gray":
            image = image.convert("L").convert("RGB")
        elif part == "solarize":
            image = ImageOps.solarize(image, SOLARIZE_FROM)
        else:
            sigma = SIGMA[0] + (SIGMA[1] - SIGMA[0]) * numbers[rng.SIGMA]
            image = image.filter(ImageFilter.GaussianBlur(float(sigma)))
    if config.color_jitter:
        low, high = jitter_range(config.color_jitter)
        for which in ORDERS[int(numbers[rng.ORDER] * len(ORDERS))]:
            factor = low + (high - low) * numbers[rng.BRIGHTNESS + which]
            image = _ENHANCERS[which](image).enhance(float(factor))
    return image


def jitter_range(strength: float) -> tuple[float, float]:
    """Return the range of the factors of brightness, contrast and saturation, as in torchvision's ColorJitter."""
    return max(0.0, 1 - strength), 1 + strength
