"""RandAugment and AutoAugment, by timm: one change after the other, drawn from a list.

``timm``     the 15 changes of timm with ``inc1``, as DeiT's and RSB's ``rand-m9-mstd0.5-inc1``: each grows with the
             magnitude, and is made with probability 0.5.
``original`` the 16 changes of the first code (TensorFlow TPU models, autoaugment.py; the copy in big_vision), which
             Steiner et al. (2022, section 3) used: brightness, contrast, colour and sharpness go from 0.1 at magnitude
             0 to 1.9 at 10, and on beyond it; solarising and posterising grow weaker; shifts are of 10 pixels a unit;
             cutout is among them; every change is made; borders are filled with grey 128 and edges are not smoothed.

Two parts of the first code are not followed: its contrast blends with the number of pixels / 256 in the place of the
mean grey (a known mistake), and it rotates about a centre that is half a pixel away.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from PIL import Image
from timm.data.auto_augment import (
    LEVEL_TO_ARG,
    AugmentOp,
    RandAugment,
    auto_augment_transform,
    rand_augment_choices,
    rand_augment_ops,
)
from timm.data.constants import IMAGENET_DEFAULT_MEAN

from usvit.config import ViewsConfig

Policy = Callable[[Image.Image], Image.Image]

FILL = tuple(round(255 * value) for value in IMAGENET_DEFAULT_MEAN)
"""Grey levels beyond the border, as DeiT's."""
TIMM_END = 10
"""timm cuts magnitudes here unless told otherwise, also those that ``magnitude_std`` has spread."""
LARGEST = 30
ORIGINAL = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "Color", "Contrast", "Brightness",
    "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY", "SolarizeAdd",
)  # fmt: skip
ORIGINAL_SHIFT = 100
"""px at magnitude 10."""
ORIGINAL_CUTOUT = 40
"""px from the centre of the cut square to its side at magnitude 10."""


def make_policy(config: ViewsConfig) -> Policy | None:
    """The changes that are drawn on the host; None: the policy has none there.

    They draw from Python's and numpy's global generators.
    """
    if config.policy == "autoaugment":
        return auto_augment_transform("original", _timm_options(config))
    if config.policy != "randaugment":
        return None
    if config.randaugment == "original":
        return RandAugment(_original_changes(config), config.layers)
    changes = rand_augment_ops(
        config.magnitude, config.probability, _timm_options(config), rand_augment_choices("", increasing=True)
    )
    return RandAugment(_drawable(changes), config.layers)


def _timm_options(config: ViewsConfig) -> dict[str, object]:
    """As ``timm.data.create_transform`` sets them."""
    options: dict[str, object] = {"img_mean": FILL, "magnitude_std": config.magnitude_std}
    if config.interpolation != "random":
        options["interpolation"] = Image.Resampling[config.interpolation.upper()]
    if config.magnitude > TIMM_END:
        options["magnitude_max"] = LARGEST
    return options


def _original_changes(config: ViewsConfig) -> list[Policy]:
    options = {
        "translate_const": ORIGINAL_SHIFT,
        "img_mean": (128, 128, 128),
        "interpolation": Image.Resampling.NEAREST,
        "magnitude_std": config.magnitude_std,
        "magnitude_max": LARGEST,
    }
    changes = []
    for name in ORIGINAL:
        change = AugmentOp(name, config.probability, config.magnitude, options)
        if name == "SolarizeAdd":
            change.level_fn = _added  # timm's ends at 128
        changes.append(change)
    return [*_drawable(changes), Cutout(config.probability, config.magnitude)]


def _added(level: float, _options: object) -> tuple[int]:
    return (int(level / 10 * 110),)


def _drawable(changes: list[AugmentOp]) -> list[AugmentOp]:
    """Posterising keeps one bit: none is black, and now an error in PIL.

    DeiT's m9-mstd0.5 gets there once in some 650 images.
    """
    for change in changes:
        if change.name.startswith("Posterize"):
            change.level_fn = partial(_one_bit, LEVEL_TO_ARG[change.name])
    return changes


def _one_bit(bits: Any, level: float, options: object) -> tuple[int]:
    return (max(bits(level, options)[0], 1),)


class Cutout:
    """A grey square over a random pixel (DeVries & Taylor 2017); near a border only a part of it is seen.

    Args:
        probability: that it is made.
        magnitude: of RandAugment; the square's side is 8 pixels a unit.
    """

    def __init__(self, probability: float, magnitude: float):
        self.probability, self.half = probability, int(magnitude / 10 * ORIGINAL_CUTOUT)

    def __call__(self, image: Image.Image) -> Image.Image:
        if random.random() >= self.probability:
            return image
        x, y = random.randrange(image.width), random.randrange(image.height)
        image = image.copy()
        image.paste((128, 128, 128), (x - self.half, y - self.half, x + self.half, y + self.half))
        return image
