"""Views of a batch on its device: flip, 3-Augment, jitter, normalisation and erasing.

On a GPU nothing waits for the host: changes are computed for all images and masked out for those not chosen.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from usvit.config.views import ViewsConfig
from usvit.data.transforms.views import rng
from usvit.data.transforms.views.color import ORDERS, SIGMA, SOLARIZE_FROM, jitter_range
from usvit.seeding import derive_seed

Statistics = tuple[float, float, float]

_ERASED_AREA = (0.02, 1 / 3)
"""Range of the erased share of the image's area (Zhong et al. 2020; DeiT uses timm's)."""
_ERASED_ASPECT = (0.3, 1 / 0.3)
"""Range of height over width of the erased box."""
_WINDOWS = 512
"""Number of noise windows in each direction, of which an image takes one."""
_BLUR_REACH = math.ceil(4 * SIGMA[1])
"""Pixels; beyond four standard deviations a Gaussian does not change a grey level."""


def resolve_on(on: Literal["auto", "cpu", "device"], device_type: str) -> bool:
    """Return whether flip, 3-Augment and jitter are computed on the device; ``auto`` means on a GPU only."""
    return on == "device" or (on == "auto" and device_type == "cuda")


class DeviceViews:
    """Changes a batch at random and normalises it: (B, S, S, 3) uint8 and (B,) int64 seeds to (B, 3, S, S) float32.

    A row depends only on its own image and seed. Erasing is always computed here, because its noise is not made of grey
    levels.

    Args:
        config: Settings of the views.
        mean, std: Of each channel, for values in [0, 1].
        on_device: Compute flip, 3-Augment and jitter here, which ``Views`` then leaves out.
    """

    def __init__(self, config: ViewsConfig, mean: Statistics, std: Statistics, *, on_device: bool):
        self.config, self.mean, self.std, self.on_device = config, mean, std, on_device
        self._kept: dict[tuple[str, torch.device, int], Tensor] = {}

    @torch.no_grad()
    def __call__(self, images: Tensor, seeds: Tensor) -> Tensor:
        x = images.permute(0, 3, 1, 2).float()  # grey levels
        chances = rng.number_table(seeds)
        if self.on_device:
            x = _recolored(x, chances, self.config, self._constant("orders", x))
        x = x.div_(255).sub_(self._constant("mean", x)).div_(self._constant("std", x))
        if self.config.erasing:
            x = _erased(x, chances, self.config.erasing, self._constant("noise", x))
        return x

    def _constant(self, name: str, x: Tensor) -> Tensor:
        """Return a constant tensor, which is copied to the device once; each copy would wait for the GPU."""
        key = (name, x.device, x.shape[-1])
        if key not in self._kept:
            self._kept[key] = self._made(name, x.shape[-1]).to(x.device)
        return self._kept[key]

    def _made(self, name: str, side: int) -> Tensor:
        if name == "orders":
            return torch.tensor(ORDERS)
        if name == "noise":  # the same on every device; each image takes one window of it
            generator = torch.Generator().manual_seed(derive_seed(0, "erasing"))
            return torch.randn(3, side + _WINDOWS, side + _WINDOWS, generator=generator)
        return torch.tensor(self.mean if name == "mean" else self.std).view(1, 3, 1, 1)


def _recolored(x: Tensor, chances: Tensor, config: ViewsConfig, orders: Tensor) -> Tensor:
    """Apply ``color.recolor`` to a batch of (B, 3, S, S) grey levels in [0, 255]."""
    x = torch.where(_each(chances[:, rng.HFLIP] < config.hflip), x.flip(-1), x)
    if config.policy == "three_augment":
        choice = (chances[:, rng.CHOICE] * len(config.three_augment)).long()
        sigma = SIGMA[0] + (SIGMA[1] - SIGMA[0]) * chances[:, rng.SIGMA]
        for index, part in enumerate(config.three_augment):
            x = _where_chosen(choice == index, _THREE_AUGMENT[part], x, sigma)
    if config.color_jitter:
        low, high = jitter_range(config.color_jitter)
        factors = low + (high - low) * chances[:, rng.BRIGHTNESS : rng.SATURATION + 1]
        x = jittered(x, factors, orders[(chances[:, rng.ORDER] * len(ORDERS)).long()])
    return x


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _where_chosen(chosen: Tensor, change: Callable[[Tensor, Tensor], Tensor], x: Tensor, sigma: Tensor) -> Tensor:
    """Change the chosen images. On a GPU all are changed, because selecting rows would synchronise with the host."""
    if x.device.type != "cpu":
        return torch.where(_each(chosen), change(x, sigma), x)
    rows = chosen.nonzero().flatten()
    x[rows] = change(x[rows], sigma[rows])  # `x` is not the caller's tensor any more since the flip
    return x


def gray(x: Tensor) -> Tensor:
    """Convert (B, 3, S, S) grey levels to (B, 1, S, S) with PIL's integer formula (ITU-R 601-2)."""
    red, green, blue = x.unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) / 65536).floor().unsqueeze(1)


def solarized(x: Tensor) -> Tensor:
    """Invert grey levels from 128 on."""
    return torch.where(x < SOLARIZE_FROM, x, 255 - x)


def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """Blur each image with its own Gaussian; the border pixels are repeated outwards.

    It multiplies by one matrix per image, so that a batch may have many different Gaussians.

    Args:
        x: (B, 3, S, S) grey levels.
        sigma: (B,) standard deviations in pixels, up to ``SIGMA[1]``.
    """
    side, reach = x.shape[-1], _BLUR_REACH
    at = torch.arange(side + 2 * reach, device=x.device) - reach
    away = (at[:, None] - torch.arange(side, device=x.device)[None]).float()
    matrix = torch.exp(-0.5 * (away / sigma.view(-1, 1, 1)) ** 2).where(away.abs() <= reach, 0.0)
    matrix = (matrix / matrix.sum(1, keepdim=True)).unsqueeze(1)  # (B, 1, S + 2 reach, S)
    with torch.autocast(x.device.type, enabled=False):
        x = F.pad(x, (reach, reach, 0, 0), mode="replicate") @ matrix
        x = matrix.mT @ F.pad(x, (0, 0, reach, reach), mode="replicate")
    return x.round()


def jittered(x: Tensor, factors: Tensor, orders: Tensor) -> Tensor:
    """Change brightness, contrast and saturation by blending with black, the mean grey, and the grey picture.

    Args:
        x: (B, 3, S, S) grey levels.
        factors: (B, 3); 1 changes nothing.
        orders: (B, 3) order of the three changes.
    """
    for which in orders.unbind(1):
        grays = gray(x)
        mean = (grays.mean((2, 3), keepdim=True) + 0.5).floor()  # as PIL rounds it
        towards = torch.where(_each(which == 1), mean, grays) * _each(which != 0)
        factor = _each(factors.gather(1, which[:, None]))
        x = torch.lerp(towards.expand_as(x), x, factor).clamp_(0, 255).floor_()  # PIL truncates
    return x


_THREE_AUGMENT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gray": lambda x, _: gray(x).expand_as(x),
    "solarize": lambda x, _: solarized(x),
    "blur": blurred,
}


def _erased(x: Tensor, chances: Tensor, probability: float, noise: Tensor) -> Tensor:
    """Fill a box of some images with normal noise, like timm's RandomErasing ('pixel')."""
    chosen = chances[:, rng.ERASE] < probability
    if x.device.type != "cpu":
        return _boxes_filled(x, chances, noise, chosen)
    rows = chosen.nonzero().flatten()
    x[rows] = _boxes_filled(x[rows], chances[rows], noise, chosen[rows])
    return x


def _boxes_filled(x: Tensor, chances: Tensor, noise: Tensor, chosen: Tensor) -> Tensor:
    """Fill the first of ``ATTEMPTS`` boxes that fits with a window of the noise, in the chosen images."""
    side = x.shape[-1]
    area = side * side * (_ERASED_AREA[0] + (_ERASED_AREA[1] - _ERASED_AREA[0]) * chances[:, rng.AREA])
    low, high = map(math.log, _ERASED_ASPECT)
    aspect = (low + (high - low) * chances[:, rng.ASPECT]).exp()
    heights, widths = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (heights < side) & (widths < side)
    first = fits.float().argmax(1, keepdim=True)
    pixel = torch.arange(side, device=x.device)
    inside, window = [], []
    for extents, at, noise_at in ((heights, rng.TOP, rng.NOISE_TOP), (widths, rng.LEFT, rng.NOISE_LEFT)):
        extent = extents.gather(1, first)
        start = (chances[:, at, None] * (side - extent + 1)).floor()
        inside.append((pixel >= start) & (pixel < start + extent))
        window.append(pixel + (chances[:, noise_at, None] * _WINDOWS).long())
    box = inside[0][:, None, :, None] & inside[1][:, None, None, :] & _each(chosen & fits.any(1))
    filled = noise[:, window[0][:, :, None], window[1][:, None, :]]  # (3, B, S, S)
    return torch.where(box, filled.transpose(0, 1), x)
