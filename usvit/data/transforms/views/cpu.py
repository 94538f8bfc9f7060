"""Views of upstream images on the CPU: crop, learned policy, and colour changes."""

import numpy as np
from PIL import Image
from torchvision.transforms import functional as F

from usvit.config import ViewsConfig
from usvit.data.io import UInt8
from usvit.data.transforms.views.color import recolor
from usvit.data.transforms.views.crops import BICUBIC, make_crop
from usvit.data.transforms.views.randaugment import make_policy
from usvit.data.transforms.views.rng import numbers, seeded


class Views:
    """Changes one picture at random: a picture of mode RGB and a seed become (S, S, 3) uint8. It can be pickled.

    The same seed gives the same bytes; the global generators of Python, numpy and torch keep their state. The changes
    are crop, policy (RandAugment, AutoAugment or TrivialAugment), then flip, 3-Augment and jitter unless
    ``DeviceViews`` computes these. Its results are the same except for rounding and for the blur: PIL's blur differs
    from a Gaussian by a few grey levels.

    Args:
        config: Settings of the views.
        image_size: S in pixels.
        on_device: Leave flip, 3-Augment and jitter to ``DeviceViews``.
    """

    def __init__(self, config: ViewsConfig, image_size: int, *, on_device: bool):
        self.config, self.on_device = config, on_device
        self._crop = make_crop(config, image_size)
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
    """Resize the short side of a test image to S / ``test_crop`` (bicubic) and cut out the central square.

    Args:
        image: Picture of mode RGB.
        image_size: S in pixels.
        test_crop: In (0, 1]; 0.875 resizes to 256 for S = 224.

    Returns:
        (S, S, 3) uint8.
    """
    resized = F.resize(image, [int(image_size / test_crop)], BICUBIC)
    return np.array(F.center_crop(resized, [image_size]))


test_view.__test__ = False  # type: ignore[attr-defined]  # keeps pytest from collecting it
