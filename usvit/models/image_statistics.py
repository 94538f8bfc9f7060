"""Simple image statistics for out-of-distribution detection; they do not depend on a network.

They are computed from the network's input, including letterbox borders, so the file is not read again.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d

STATISTICS = (
    *("mean", "spread", "black", "white", "colour", "coloured"),
    *("across_1", "across_2", "across_4", "along_1", "along_2", "along_4"),
    *("depth_1", "depth_2", "depth_3", "depth_4", "left", "middle", "right"),
    *("detail_1", "detail_2", "detail_3", "detail_4"),
)
"""Names in the order of ``picture_statistics``. ``across`` and ``along``: energy of edges across and along the depth
axis at 1, 2 and 4 px; their ratios measure the slope of the spectrum. ``depth``: brightness of four bands from the
probe down; ``detail``: edge energy of these bands."""

BLACK, WHITE, COLOURED = 8 / 255, 247 / 255, 60 / 255
"""Largest grey level of black, smallest of white, and smallest difference of channels of a coloured pixel."""
RESOLUTION = 0.01
"""Smallest meaningful difference of a statistic; used as the spread if all training images are equal (no colour). Grey
levels and roots of shares lie in [0, 1]; energies are natural logarithms."""
_FLAT = 1 / 1024
"""Added to an energy before its logarithm: a quarter of a grey level."""


def picture_statistics(pixels: torch.Tensor) -> torch.Tensor:
    """Compute ``STATISTICS`` of each image.

    Args:
        pixels: (B, S, S, 3) uint8, S >= 16, on any device.

    Returns:
        (B, 23) float32 on the same device, finite for any image.
    """
    colour = pixels.permute(0, 3, 1, 2).float() / 255
    grey = (colour * colour.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    mean = grey.mean((1, 2, 3))
    apart = colour.amax(1) - colour.amin(1)
    columns = [
        mean,
        grey.std((1, 2, 3)),
        _root_share(grey[:, 0] <= BLACK),
        _root_share(grey[:, 0] >= WHITE),
        apart.mean((1, 2)).sqrt(),
        _root_share(apart >= COLOURED),
    ]
    scales = [grey if scale == 1 else avg_pool2d(grey, scale) for scale in (1, 2, 4)]
    columns += [_log_energy(one.diff(dim=3)) for one in scales]
    columns += [_log_energy(one.diff(dim=2)) for one in scales]
    depth = adaptive_avg_pool2d(grey, (4, 1)).flatten(1) - mean[:, None]
    sides = adaptive_avg_pool2d(grey, (1, 3)).flatten(1) - mean[:, None]
    edges = grey.diff(dim=3).abs()
    detail = (adaptive_avg_pool2d(edges, (4, 1)).flatten(1) + _FLAT).log() - _log_energy(edges)[:, None]
    return torch.cat([torch.stack(columns, 1), depth, sides, detail], 1)


def statistics_of(batches: Iterator[torch.Tensor], device: torch.device) -> NDArray[np.float32]:
    """Compute the statistics (N, 23) of all images of ``batches`` (``pixel_store.eval_batches``), in their order."""
    return torch.cat([picture_statistics(images.to(device)).cpu() for images in batches]).numpy()


def _root_share(of: torch.Tensor) -> torch.Tensor:
    """Return the root of each image's share of true pixels; the root stabilises the variance of a share."""
    return of.float().mean((1, 2)).sqrt()


def _log_energy(edges: torch.Tensor) -> torch.Tensor:
    return (edges.abs().mean((1, 2, 3)) + _FLAT).log()
