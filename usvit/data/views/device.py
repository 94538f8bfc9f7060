"""The half of the views that a batch goes through on its device: flip, 3-Augment, jitter, normalisation, erasing.

Without a look back at the host: whoever is not chosen is computed, too, and masked out.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from usvit.config import ViewsConfig
from usvit.data.views import chance
from usvit.data.views.color import BLUR, GRAY, ORDERS, SIGMA, SOLARIZE, SOLARIZE_FROM, jitter_range
from usvit.seeding import derive_seed

Statistics = tuple[float, float, float]

ERASED_AREA = (0.02, 1 / 3)
"""Share of the image's area that erasing takes (Zhong et al. 2020; DeiT's, of timm)."""
ERASED_ASPECT = (0.3, 1 / 0.3)
"""Height over width of the erased box."""
WINDOWS = 512
"""Windows of the noise in each direction, of which an image takes one."""
BLUR_REACH = math.ceil(4 * SIGMA[1])
"""px: beyond four standard deviations a Gaussian gives nothing to a grey level."""


def resolve_on(on: Literal["auto", "cpu", "device"], device_type: str) -> bool:
    """Whether flips, 3-Augment and jitter are computed on the device: where one asks for it, or it is a GPU."""
    return on == "device" or (on == "auto" and device_type == "cuda")


class DeviceViews:
    """(B, S, S, 3) uint8 and (B,) int64 seeds -> (B, 3, S, S) float32, changed at random and normalised.

    A row depends on its own image and seed alone. Erasing is computed here in any case: its noise has no grey levels.

    Args:
        config: what is done.
        mean, std: of each channel, on the scale [0, 1].
        on_device: compute flip, 3-Augment and jitter here, as ``Views`` has left them out.
    """

    def __init__(self, config: ViewsConfig, mean: Statistics, std: Statistics, *, on_device: bool):
        self.config, self.mean, self.std, self.on_device = config, mean, std, on_device
        self._kept: dict[tuple[str, torch.device, int], Tensor] = {}

    @torch.no_grad()
    def __call__(self, images: Tensor, seeds: Tensor) -> Tensor:
        x = images.permute(0, 3, 1, 2).float()  # grey levels
        chances = chance.number_table(seeds)
        if self.on_device:
            x = _recolored(x, chances, self.config, self._constant("orders", x))
        x = x.div_(255).sub_(self._constant("mean", x)).div_(self._constant("std", x))
        if self.config.erasing:
            x = _erased(x, chances, self.config.erasing, self._constant("noise", x))
        return x

    def _constant(self, name: str, x: Tensor) -> Tensor:
        """Made once: each copy to a GPU would wait for what it is computing."""
        key = (name, x.device, x.shape[-1])
        if key not in self._kept:
            self._kept[key] = self._made(name, x.shape[-1]).to(x.device)
        return self._kept[key]

    def _made(self, name: str, side: int) -> Tensor:
        if name == "orders":
            return torch.tensor(ORDERS)
        if name == "noise":  # the same on every device: each image takes a window of it
            generator = torch.Generator().manual_seed(derive_seed(0, "erasing"))
            return torch.randn(3, side + WINDOWS, side + WINDOWS, generator=generator)
        return torch.tensor(self.mean if name == "mean" else self.std).view(1, 3, 1, 1)


def _recolored(x: Tensor, chances: Tensor, config: ViewsConfig, orders: Tensor) -> Tensor:
    """``color.recolor`` of a batch: (B, 3, S, S) grey levels in [0, 255] to such."""
    x = torch.where(_each(chances[:, chance.HFLIP] < config.hflip), x.flip(-1), x)
    if config.policy == "three_augment":
        choice = (chances[:, chance.CHOICE] * 3).long()
        sigma = SIGMA[0] + (SIGMA[1] - SIGMA[0]) * chances[:, chance.SIGMA]
        x = _where_chosen(choice == GRAY, lambda part, _: gray(part).expand_as(part), x, sigma)
        x = _where_chosen(choice == SOLARIZE, lambda part, _: solarized(part), x, sigma)
        x = _where_chosen(choice == BLUR, blurred, x, sigma)
    if config.color_jitter:
        low, high = jitter_range(config.color_jitter)
        factors = low + (high - low) * chances[:, chance.BRIGHTNESS : chance.SATURATION + 1]
        x = jittered(x, factors, orders[(chances[:, chance.ORDER] * len(ORDERS)).long()])
    return x


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _where_chosen(chosen: Tensor, change: Callable[[Tensor, Tensor], Tensor], x: Tensor, sigma: Tensor) -> Tensor:
    """The changed images where chosen. A GPU changes all: to count the chosen would make it wait for the host."""
    if x.device.type != "cpu":
        return torch.where(_each(chosen), change(x, sigma), x)
    rows = chosen.nonzero().flatten()
    x[rows] = change(x[rows], sigma[rows])  # `x` is ours since the flip
    return x


def gray(x: Tensor) -> Tensor:
    """(B, 3, S, S) grey levels -> (B, 1, S, S), in PIL's whole numbers (ITU-R 601-2)."""
    red, green, blue = x.unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) / 65536).floor().unsqueeze(1)


def solarized(x: Tensor) -> Tensor:
    """Grey levels from 128 on inverted."""
    return torch.where(x < SOLARIZE_FROM, x, 255 - x)


def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """A Gaussian of its own for each image; beyond the border its last pixels go on.

    As products with one matrix an image, which take many different Gaussians at once.

    Args:
        x: (B, 3, S, S) grey levels.
        sigma: (B,) standard deviations, in pixels, up to ``SIGMA[1]``.
    """
    side, reach = x.shape[-1], BLUR_REACH
    at = torch.arange(side + 2 * reach, device=x.device) - reach
    away = (at[:, None] - torch.arange(side, device=x.device)[None]).float()
    matrix = torch.exp(-0.5 * (away / sigma.view(-1, 1, 1)) ** 2).where(away.abs() <= reach, 0.0)
    matrix = (matrix / matrix.sum(1, keepdim=True)).unsqueeze(1)  # (B, 1, S + 2 reach, S)
    with torch.autocast(x.device.type, enabled=False):
        x = F.pad(x, (reach, reach, 0, 0), mode="replicate") @ matrix
        x = matrix.mT @ F.pad(x, (0, 0, reach, reach), mode="replicate")
    return x.round()


def jittered(x: Tensor, factors: Tensor, orders: Tensor) -> Tensor:
    """Brightness, contrast and saturation: blends with black, with the mean grey, and with the grey picture.

    Args:
        x: (B, 3, S, S) grey levels.
        factors: (B, 3), 1 for no change.
        orders: (B, 3) which of the three comes first, second, third.
    """
    for which in orders.unbind(1):
        grays = gray(x)
        mean = (grays.mean((2, 3), keepdim=True) + 0.5).floor()  # as PIL rounds it
        towards = torch.where(_each(which == 1), mean, grays) * _each(which != 0)
        factor = _each(factors.gather(1, which[:, None]))
        x = torch.lerp(towards.expand_as(x), x, factor).clamp_(0, 255).floor_()  # PIL cuts the fraction off
    return x


def _erased(x: Tensor, chances: Tensor, probability: float, noise: Tensor) -> Tensor:
    """A box of normal noise in some images, as timm's RandomErasing ('pixel')."""
    chosen = chances[:, chance.ERASE] < probability
    if x.device.type != "cpu":
        return _boxes_filled(x, chances, noise, chosen)
    rows = chosen.nonzero().flatten()
    x[rows] = _boxes_filled(x[rows], chances[rows], noise, chosen[rows])
    return x


def _boxes_filled(x: Tensor, chances: Tensor, noise: Tensor, chosen: Tensor) -> Tensor:
    """The first of ``ATTEMPTS`` boxes that fits is filled with a window of the noise, where chosen."""
    side = x.shape[-1]
    area = side * side * (ERASED_AREA[0] + (ERASED_AREA[1] - ERASED_AREA[0]) * chances[:, chance.AREA])
    low, high = map(math.log, ERASED_ASPECT)
    aspect = (low + (high - low) * chances[:, chance.ASPECT]).exp()
    heights, widths = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (heights < side) & (widths < side)
    first = fits.float().argmax(1, keepdim=True)
    pixel = torch.arange(side, device=x.device)
    inside, window = [], []
    for extents, at, noise_at in ((heights, chance.TOP, chance.NOISE_TOP), (widths, chance.LEFT, chance.NOISE_LEFT)):
        extent = extents.gather(1, first)
        start = (chances[:, at, None] * (side - extent + 1)).floor()
        inside.append((pixel >= start) & (pixel < start + extent))
        window.append(pixel + (chances[:, noise_at, None] * WINDOWS).long())
    box = inside[0][:, None, :, None] & inside[1][:, None, None, :] & _each(chosen & fits.any(1))
    filled = noise[:, window[0][:, :, None], window[1][:, None, :]]  # (3, B, S, S)
    return torch.where(box, filled.transpose(0, 1), x)
