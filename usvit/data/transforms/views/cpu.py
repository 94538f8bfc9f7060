"""Views of upstream images on the CPU: crop, learned policy, and colour changes."""

from typing import Literal

import numpy as np
from PIL import Image, ImageOps
from torchvision.transforms import functional as F

from usvit.config.views import ViewsConfig
from usvit.data.io import UInt8
from usvit.data.transforms.views.color import recolor
from usvit.data.transforms.views.crops import Window, cut, interpolation_mode, make_crop
from usvit.data.transforms.views.dino import FIRST, Place
from usvit.data.transforms.views.randaugment import make_policy
from usvit.data.transforms.views.rng import numbers, seeded

TestResize = Literal["short_side", "squash", "pad"]


class Views:
    """Changes one picture at random: a picture of mode RGB and a seed become (S, S, 3) uint8. It can be pickled.

    The same seed gives the same bytes; the global generators of Python, numpy and torch keep their state. The changes
    are crop, policy (RandAugment, AutoAugment, TrivialAugment or DINO's), then flip, 3-Augment and jitter unless
    ``DeviceViews`` computes these. Its results are the same except for rounding and for the blur: PIL's blur differs
    from a Gaussian by a few grey levels.

    Args:
        config: Settings of the views.
        image_size: S in pixels.
        on_device: Leave flip, 3-Augment and jitter to ``DeviceViews``.
        place: Place of the view among those of an example, on which DINO's policy depends.
    """

    def __init__(self, config: ViewsConfig, image_size: int, *, on_device: bool, place: Place = FIRST):
        self.config, self.on_device, self.image_size = config, on_device, image_size
        self._crop = make_crop(config, image_size)
        self._policy = make_policy(config, place)

    def window(self, width: int, height: int, seed: int) -> Window:
        """Draw the crop of a picture of this size, as for a picture of the same seed."""
        with seeded(seed):
            return self._crop.window(width, height)

    def __call__(self, image: Image.Image, seed: int) -> UInt8:
        with seeded(seed):
            image = cut(image, self._crop.window(image.width, image.height), self.image_size)
            if self._policy is not None:
                image = self._policy(image)
        if not self.on_device:
            image = recolor(image, numbers(seed), self.config)
        return np.array(image)


def make_views(config: ViewsConfig, image_size: int, *, on_device: bool) -> tuple[tuple[Views, ...], tuple[Views, ...]]:
    """Make the ``views.count`` views of an example, and its ``views.local_count`` local crops.

    Args:
        config: Settings of the views.
        image_size: Side of the network's input in pixels.
        on_device: See ``Views``.
    """
    others: list[Place] = ["other"] * (config.count - 1)
    local = config.model_copy(update={"scale": config.local_scale})
    side = config.local_size or image_size
    return (
        tuple(Views(config, image_size, on_device=on_device, place=place) for place in (FIRST, *others)),
        tuple(Views(local, side, on_device=on_device, place="local") for _ in range(config.local_count)),
    )


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
    resized = F.resize(image, [side, side] if resize == "squash" else [side], interpolation_mode(interpolation))
    return np.array(F.center_crop(resized, [image_size]))


test_view.__test__ = False  # type: ignore[attr-defined]  # keeps pytest from collecting it
