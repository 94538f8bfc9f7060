"""The augmentation policies for a batch on its device: the twin of ``Policy``, by what ``batch_draws`` has drawn.

Nothing is drawn here and, on a GPU, nothing waits for the host. An image depends only on its own pixels and draws. The
result differs from the host's by rounding (``tests/data/transforms/test_device_policies.py`` states by how much).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from usvit.data.transforms.batch_draws import KERNEL, BatchDraws, WaveDraws


@torch.no_grad()
def augment_batch(images: Tensor, draws: BatchDraws) -> Tensor:
    """Change a batch as ``Policy`` changes each image.

    Args:
        images: (B, S, S, 3) uint8, which is not modified.
        draws: The changes, on the same device.

    Returns:
        (B, S, S, 3) uint8.
    """
    with torch.autocast(images.device.type, enabled=False):
        x = images.permute(0, 3, 1, 2).contiguous().float()  # grey levels
        inside = _inside(draws.box, x.shape[-1])
        if len(draws.speckle.row):
            x = x.index_copy(0, draws.speckle.row, _with_speckle(x, draws.speckle, draws.box, inside))
        if len(draws.haze.row):
            x = x.index_copy(0, draws.haze.row, _with_haze(x, draws.haze, draws.box, inside))
        x = _with_depth_gain(x, draws.depth_gain, draws.box)
        x = torch.where(inside, _mapped(x, draws.table), x)
        if len(draws.filter_row):
            x = x.index_copy(0, draws.filter_row, _filtered(x, draws, inside))
        return _viewed(x, draws.matrix).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _inside(box: Tensor, side: int) -> Tensor:
    """Return (B, 1, S, S) bool, true inside of each picture."""
    pixel = torch.arange(side, device=box.device)
    top, bottom, left, right = box[:, :, None].unbind(1)
    rows, columns = (pixel >= top) & (pixel < bottom), (pixel >= left) & (pixel < right)
    return (rows[:, :, None] & columns[:, None, :]).unsqueeze(1)


def _with_speckle(x: Tensor, draws: WaveDraws, box: Tensor, inside: Tensor) -> Tensor:
    """Return the n images of ``draws`` with speckle (``ultrasound_effects.with_speckle``)."""
    inside = inside[draws.row]
    factor = _magnitude(draws, box[draws.row], x.shape[-1]) ** _each(draws.strength[:, 0])
    return _times(x[draws.row], factor / _mean(factor, inside))


def _with_haze(x: Tensor, draws: WaveDraws, box: Tensor, inside: Tensor) -> Tensor:
    """Return the n images of ``draws`` with haze (``ultrasound_effects.with_haze``)."""
    inside, box, x = inside[draws.row], box[draws.row], x[draws.row]
    magnitude = _magnitude(draws, box, x.shape[-1])
    layers = (1 + magnitude / _mean(magnitude, inside)) / 2
    strength, reach = _each(draws.strength[:, 0]), _each(draws.strength[:, 1])
    white = strength * torch.exp(-_depth(box, x.shape[-1]) / reach) * layers
    return torch.where(inside, 255 - _times(255 - x, 1 - white.clamp(0, 1)), x)


def _with_depth_gain(x: Tensor, exponent: Tensor, box: Tensor) -> Tensor:
    """Apply ``ultrasound_effects.with_depth_gain``; an exponent of 0 changes nothing."""
    return _times(x, torch.exp(_each(exponent) * (_depth(box, x.shape[-1]) - 0.5)))


def _mapped(x: Tensor, table: Tensor) -> Tensor:
    """Return the new value of each grey level."""
    return table.float().gather(1, x.flatten(1).long()).view_as(x)


def _filtered(x: Tensor, draws: BatchDraws, inside: Tensor) -> Tensor:
    """Return the m filtered images; beyond its edge, a picture is mirrored without its edge pixels."""
    row, side, reach = draws.filter_row, x.shape[-1], KERNEL // 2
    unchanged, box = x[row], draws.box[row]
    x = unchanged
    at = torch.arange(-reach, side + reach, device=x.device)[None]
    for start, stop, dim in ((box[:, 0], box[:, 1], 2), (box[:, 2], box[:, 3], 3)):
        last = (stop - start - 1).clamp(min=0)[:, None]
        # Several times mirrored: the kernel may be larger than the picture.
        period = (2 * last).clamp(min=1)
        within = (at - start[:, None]).remainder(period)
        source = start[:, None] + torch.minimum(within, 2 * last - within)
        shape = [len(row), 1, 1, 1]
        shape[dim] = source.shape[1]
        extent = list(x.shape)
        extent[dim] = source.shape[1]
        x = x.gather(dim, source.clamp(0, side - 1).view(shape).expand(extent))
    total = torch.zeros_like(x[:, :, :side, :side])
    for down in range(KERNEL):
        for right in range(KERNEL):
            total += x[:, :, down : down + side, right : right + side] * _each(draws.kernel[:, down, right])
    return torch.where(inside[row], total.round().clamp(0, 255), unchanged)


def _viewed(x: Tensor, matrix: Tensor) -> Tensor:
    """Return what is in each window (``View.of``), rounded; it is black outside of the image."""
    side = x.shape[-1]
    pixel = torch.arange(side, device=x.device, dtype=torch.float32)
    at = matrix[:, None, None, :, 0] * pixel[None, None, :, None] + (
        matrix[:, None, None, :, 1] * pixel[None, :, None, None] + matrix[:, None, None, :, 2]
    )
    grid = (2 * at + 1) / side - 1
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False).round()


def _magnitude(draws: WaveDraws, box: Tensor, side: int) -> Tensor:
    """Enlarge noise to the pictures: (n, 1, S, S), the magnitude, any values outside of the pictures."""
    pixel = torch.arange(side, device=box.device)
    ats = []
    for start, stop, count in ((box[:, 0], box[:, 1], draws.size[:, 0]), (box[:, 2], box[:, 3], draws.size[:, 1])):
        scale = (count / (stop - start).clamp(min=1))[:, None]
        at = (pixel + 0.5 - start[:, None]) * scale - 0.5
        ats.append(at.clamp(min=0).minimum(count[:, None] - 1.0))
    waves = draws.waves.float()
    rows, columns = waves.shape[-2:]
    down, right = (2 * ats[0] + 1) / rows - 1, (2 * ats[1] + 1) / columns - 1
    grid = torch.stack([right[:, None, :].expand(-1, side, -1), down[:, :, None].expand(-1, -1, side)], dim=3)
    enlarged = F.grid_sample(waves, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return enlarged.square().sum(1, keepdim=True).sqrt()


def _mean(values: Tensor, inside: Tensor) -> Tensor:
    """Return the mean of (n, 1, S, S) inside of each picture, at least 1e-6."""
    total = torch.where(inside, values, 0.0).sum((1, 2, 3), keepdim=True)
    return (total / inside.sum((1, 2, 3), keepdim=True).clamp(min=1)).clamp(min=1e-6)


def _depth(box: Tensor, side: int) -> Tensor:
    """Return (n, 1, S, 1) depths from 0 at the probe to 1 at the bottom of each picture."""
    height = (box[:, 1] - box[:, 0]).clamp(min=1)
    rows = torch.arange(side, device=box.device) - box[:, :1] + 0.5
    return (rows / height[:, None]).clamp(0, 1).view(-1, 1, side, 1)


def _times(x: Tensor, factor: Tensor) -> Tensor:
    return (x * factor).round().clamp(0, 255)


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
