"""Crops of a batch on its device: the twin of ``crops.cut``, for pictures that lie at the upper left of squares.

PIL resizes each axis by a weighted sum over its pixels, horizontally first, and rounds after each. The same sums are a
product with one matrix for each image and axis here, so that a batch may have any boxes; pixels beyond the edge of a
resized box are rows of the matrix that repeat. On a GPU nothing waits for the host.

The result is PIL's within rounding (``tests/data/transforms/views/test_gpu_crops.py`` states by how much). Some
releases of Pillow resize tall pictures vertically first, so that more values there differ by a level.
"""

import torch
from torch import Tensor

AT_ONCE = 128
"""Images that are computed at once, which bounds the memory of the matrices and of the sums."""
_SHARPNESS = -0.5
"""Parameter of the bicubic kernel, PIL's (Resample.c)."""


@torch.no_grad()
def cut_batch(images: Tensor, windows: Tensor, image_size: int) -> Tensor:
    """Return the S x S pixels of each window, as ``crops.cut`` does.

    Args:
        images: (B, D, D, 3) uint8; the picture is at the upper left, and what is beside it does not count.
        windows: (B, 9) int64, the ``Window`` of each image, on the same device.
        image_size: S in pixels.

    Returns:
        (B, S, S, 3) uint8.
    """
    parts = zip(images.split(AT_ONCE), windows.split(AT_ONCE), strict=True)
    return torch.cat([_cut(part, drawn, image_size) for part, drawn in parts])


def _cut(images: Tensor, windows: Tensor, image_size: int) -> Tensor:
    left, top, width, height, across, down, x, y, bicubic = windows[:, :, None, None].unbind(1)  # (B, 1, 1) each
    extent, bicubic = images.shape[1], bicubic.bool()
    columns = _weights(left, width, across, x, bicubic, image_size, extent)
    rows = _weights(top, height, down, y, bicubic, image_size, extent)
    with torch.autocast(images.device.type, enabled=False):
        planes = images.permute(0, 3, 1, 2).float().flatten(1, 2)  # (B, 3 D, D)
        planes = _rounded(planes @ columns.mT).unflatten(1, (3, extent))
        planes = _rounded(rows.unsqueeze(1) @ planes)
    return planes.to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _weights(
    start: Tensor, length: Tensor, resized: Tensor, first: Tensor, bicubic: Tensor, image_size: int, extent: int
) -> Tensor:
    """Return (B, S, D), the share of each of D pixels of an axis in each of the S pixels of the result.

    Args:
        start, length: (B, 1, 1) box in the picture.
        resized: (B, 1, 1) length to which it is resized.
        first: (B, 1, 1) first pixel of the result in it.
        bicubic: (B, 1, 1) bool.
        image_size: S.
        extent: D.
    """
    device = start.device
    period = (2 * resized - 2).clamp(min=1)
    at = (first + torch.arange(image_size, device=device)[:, None]).remainder(period)
    at = torch.minimum(at, period - at)  # reflected
    scale = length / resized
    stretch = scale.clamp(min=1)  # antialiasing: the kernel grows with the pixels of the result
    pixel = torch.arange(extent, device=device) - start
    away = ((pixel + 0.5 - (at + 0.5) * scale) / stretch).abs()
    weights = torch.where(bicubic, _cubic(away), (1 - away).clamp(min=0))
    weights = weights.masked_fill((pixel < 0) | (pixel >= length), 0.0)
    return weights / weights.sum(2, keepdim=True)


def _cubic(away: Tensor) -> Tensor:
    """Return the bicubic kernel at distances from 0 (Keys 1981)."""
    a = _SHARPNESS
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = (((away - 5) * away + 8) * away - 4) * a
    return torch.where(away < 1, near, torch.where(away < 2, far, 0.0))


def _rounded(levels: Tensor) -> Tensor:
    """Round to grey levels as PIL does."""
    return levels.add_(0.5).floor_().clamp_(0, 255)
