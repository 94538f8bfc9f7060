"""Colour changes of DINO, whose probabilities differ between the views of an example (Caron et al. 2021).

The paper names them ("the data augmentations of BYOL": colour jittering, Gaussian blur and solarization, section 3.2);
strengths and probabilities are those of its public code, main_dino.py.
"""

import random
from typing import Literal

from PIL import Image, ImageFilter, ImageOps
from torchvision.transforms import functional as F

from usvit.data.transforms.views.color import SIGMA, SOLARIZE_FROM

Place = Literal["first", "other", "local"]
"""Place of a view among those of an example: the first global crop, another global crop, or a local crop."""

FIRST: Place = "first"

JITTER, GRAY = 0.8, 0.2
"""Probabilities of the jitter and of a conversion to grey."""
BRIGHTNESS = CONTRAST = (0.6, 1.4)
SATURATION, HUE = (0.8, 1.2), (-0.1, 0.1)
"""Ranges of the factors of the jitter, and of the shift of the hue as a share of its circle."""
_BLUR: dict[Place, float] = {"first": 1.0, "other": 0.1, "local": 0.5}
"""Probability of a Gaussian blur, whose standard deviation is uniform in ``color.SIGMA`` pixels."""
_SOLARIZE: dict[Place, float] = {"first": 0.0, "other": 0.2, "local": 0.0}


class DinoPolicy:
    """Changes the colours of a picture of mode RGB: jitter in a random order, grey, blur, solarising, each by chance.

    It draws from Python's global generator.

    Args:
        place: Place of the view, which decides the probabilities of blur and solarising.
    """

    def __init__(self, place: Place):
        self.blur, self.solarize = _BLUR[place], _SOLARIZE[place]

    def __call__(self, image: Image.Image) -> Image.Image:
        if random.random() < JITTER:
            changes = [
                (F.adjust_brightness, random.uniform(*BRIGHTNESS)),
                (F.adjust_contrast, random.uniform(*CONTRAST)),
                (F.adjust_saturation, random.uniform(*SATURATION)),
                (F.adjust_hue, random.uniform(*HUE)),
            ]
            random.shuffle(changes)
            for change, strength in changes:
                image = change(image, strength)
        if random.random() < GRAY:
            image = image.convert("L").convert("RGB")
        if random.random() < self.blur:
            image = image.filter(ImageFilter.GaussianBlur(random.uniform(*SIGMA)))
        if random.random() < self.solarize:
            image = ImageOps.solarize(image, SOLARIZE_FROM)
        return image
