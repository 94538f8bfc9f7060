"""RandAugment and AutoAugment by timm, and TrivialAugment by torchvision: changes that are drawn from a list.

RandAugment has two variants:

``timm``     the 15 changes of timm with ``inc1``, as in ``rand-m9-mstd0.5-inc1`` of DeiT and RSB: each grows with the
             magnitude, and is applied with probability 0.5.
``original`` the 16 changes of the original code (TensorFlow TPU models, autoaugment.py; copied in big_vision), which
             Steiner et al. (2022, section 3) used: brightness, contrast, colour and sharpness range from 0.1 at
             magnitude 0 to 1.9 at 10, and further beyond 10; solarising and posterising become weaker; shifts are 10
             pixels per unit; cutout is included; every drawn change is applied; borders are filled with grey 128, and
             interpolation is by nearest neighbour.

``original`` here differs from the original code in two points: contrast blends with the mean grey, not with the
number of pixels / 256 (a known error), and rotation is about the exact centre, not half a pixel away.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
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
from torchvision.transforms import TrivialAugmentWide

from usvit.config.views import ViewsConfig
from usvit.data.transforms.views.dino import FIRST, DinoPolicy, Place

Policy = Callable[[Image.Image], Image.Image]

_FILL = tuple(round(255 * value) for value in IMAGENET_DEFAULT_MEAN)
"""Grey levels outside the border, as in DeiT."""
_TIMM_END = 10
"""timm clips magnitudes here by default, including those that ``magnitude_std`` has varied."""
LARGEST = 30
_ORIGINAL = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "Color", "Contrast", "Brightness",
    "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY", "SolarizeAdd",
)  # fmt: skip
_ORIGINAL_SHIFT = 100
"""Shift in pixels at magnitude 10."""
_ORIGINAL_CUTOUT = 40
"""Pixels from the centre of the cut-out square to its side at magnitude 10."""


def make_policy(config: ViewsConfig, place: Place = FIRST) -> Policy | None:
    """Make the policy that runs on the CPU; None if the configured policy has no part there.

    It draws from the global generators of Python and numpy.

    Args:
        config: Settings of the views.
        place: Place of the view among those of an example.
    """
    if config.policy == "dino":
        return DinoPolicy(place)
    if config.policy == "autoaugment":
        return auto_augment_transform("original", _timm_options(config))
    if config.policy == "trivialaugment":
        return TrivialAugment()
    if config.policy != "randaugment":
        return None
    if config.randaugment == "original":
        return RandAugment(_original_changes(config), config.layers)
    changes = rand_augment_ops(
        config.magnitude, config.probability, _timm_options(config), rand_augment_choices("", increasing=True)
    )
    return RandAugment(_drawable(changes), config.layers)


def _timm_options(config: ViewsConfig) -> dict[str, object]:
    """Return the options that ``timm.data.create_transform`` sets."""
    options: dict[str, object] = {"img_mean": _FILL, "magnitude_std": config.magnitude_std}
    if config.interpolation != "random":
        options["interpolation"] = Image.Resampling[config.interpolation.upper()]
    if config.magnitude > _TIMM_END:
        options["magnitude_max"] = LARGEST
    return options


def _original_changes(config: ViewsConfig) -> list[Policy]:
    options = {
        "translate_const": _ORIGINAL_SHIFT,
        "img_mean": (128, 128, 128),
        "interpolation": Image.Resampling.NEAREST,
        "magnitude_std": config.magnitude_std,
        "magnitude_max": LARGEST,
    }
    changes = []
    for name in _ORIGINAL:
        change = AugmentOp(name, config.probability, config.magnitude, options)
        if name == "SolarizeAdd":
            change.level_fn = _added  # timm's ends at 128
        changes.append(change)
    return [*_drawable(changes), Cutout(config.probability, config.magnitude)]


def _added(level: float, _options: object) -> tuple[int]:
    return (int(level / 10 * 110),)


def _drawable(changes: list[AugmentOp]) -> list[AugmentOp]:
    """Let posterising keep at least one bit, since zero bits give black, and an error in current PIL.

    DeiT's m9-mstd0.5 draws zero bits about once in 650 images.
    """
    for change in changes:
        if change.name.startswith("Posterize"):
            change.level_fn = partial(_one_bit, LEVEL_TO_ARG[change.name])
    return changes


def _one_bit(bits: Any, level: float, options: object) -> tuple[int]:
    return (max(bits(level, options)[0], 1),)


class Cutout:
    """Draws a grey square around a random pixel (DeVries & Taylor 2017); near a border only a part is visible.

    Args:
        probability: Probability that it is applied.
        magnitude: Magnitude of RandAugment; the side of the square is 8 pixels per unit.
    """

    def __init__(self, probability: float, magnitude: float):
        self.probability, self.half = probability, int(magnitude / 10 * _ORIGINAL_CUTOUT)

    def __call__(self, image: Image.Image) -> Image.Image:
        if random.random() >= self.probability:
            return image
        x, y = random.randrange(image.width), random.randrange(image.height)
        image = image.copy()
        image.paste((128, 128, 128), (x - self.half, y - self.half, x + self.half, y + self.half))
        return image


class TrivialAugment:
    """Applies one of 14 changes with a random strength (Müller & Hutter 2021): torchvision's ``TrivialAugmentWide``.

    As there and in the authors' code, it interpolates by nearest neighbour and fills with black. It draws a seed from
    Python's global generator for torch's, whose state it restores.
    """

    def __init__(self) -> None:
        self._change = TrivialAugmentWide()

    def __call__(self, image: Image.Image) -> Image.Image:
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(random.getrandbits(63))  # not torch.manual_seed, which seeds GPUs, too
        try:
            changed: Image.Image = self._change(image)
        finally:
            torch.set_rng_state(state)
        return changed
