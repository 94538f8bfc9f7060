"""A small feature pyramid that predicts the lesion mask from the feature maps of a network."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

WIDTH = 32
"""Channels of the decoder; small, so that the network itself has to find the lesion."""


class MaskDecoder(nn.Module):
    """Maps feature maps, finest first, to the logits of the mask at the size of the finest (Lin et al. 2017, FPN).

    Args:
        channels: Number of channels of each map.
    """

    def __init__(self, channels: Sequence[int]):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(width, WIDTH, 1) for width in channels)
        self.top = nn.Sequential(
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            nn.Conv2d(WIDTH, 1, 1),
        )

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Map (B, C_i, h_i, w_i), finest first, to (B, h_0, w_0) logits."""
        merged = self.lateral[-1](maps[-1])
        for level in range(len(maps) - 2, -1, -1):
            finer = self.lateral[level](maps[level])
            merged = finer + F.interpolate(merged, size=finer.shape[-2:], mode="nearest")
        mask: Tensor = self.top(merged)[:, 0]
        return mask
