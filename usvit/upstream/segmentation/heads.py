"""Heads that predict the class of each pixel from the feature maps of a network.

Sources: Strudel et al. (2021), Segmenter, ICCV, section 3.2; Xiao et al. (2018), UPerNet, ECCV, section 3; the pyramid
of a plain ViT: Bao et al. (2022), BEiT, appendix. Each is the authors' forward pass; normalisation and dropout are
those of their public code.
"""

from collections.abc import Sequence

import torch
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F

_POOLS = (1, 2, 3, 6)
"""Sides of the pooled maps of UPerNet's pyramid pooling (Zhao et al. 2017)."""
_HEAD_WIDTH = 64
"""Width of an attention head of Segmenter's decoder."""
_DROPOUT = 0.1


def resized(maps: Tensor, like: Tensor) -> Tensor:
    """Interpolate maps (B, C, h, w) bilinearly to the height and width of others."""
    return F.interpolate(maps, size=like.shape[-2:], mode="bilinear", align_corners=False)


class LinearMasks(nn.Module):
    """Linear head: a 1 x 1 convolution of all maps, joined at the size of the finest.

    Args:
        channels: Channels of each map, finest first.
        n_classes: K.
    """

    def __init__(self, channels: Sequence[int], n_classes: int):
        super().__init__()
        self.classify = nn.Conv2d(sum(channels), n_classes, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Map (B, C_i, h_i, w_i), finest first, to (B, K, h_0, w_0) logits."""
        logits: Tensor = self.classify(torch.cat([maps[0], *(resized(one, maps[0]) for one in maps[1:])], dim=1))
        return logits


class MaskTransformer(nn.Module):
    """Segmenter's decoder: a transformer over the cells of the last map and a token for each class.

    The logit of a cell for a class is the cosine of their projections, normalised over the classes.

    Args:
        channels: Channels C of each map; the last map is read.
        n_classes: K.
        depth: Number of layers.
    """

    def __init__(self, channels: Sequence[int], n_classes: int, depth: int = 2):
        super().__init__()
        width = channels[-1]
        heads = max(one for one in range(1, max(1, width // _HEAD_WIDTH) + 1) if width % one == 0)
        self.project = nn.Linear(width, width)
        self.tokens = nn.Parameter(torch.empty(1, n_classes, width))
        self.blocks = nn.ModuleList(
            Block(width, heads, qkv_bias=True, proj_drop=_DROPOUT, attn_drop=_DROPOUT, norm_layer=nn.LayerNorm)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.of_cells = nn.Parameter(width**-0.5 * torch.randn(width, width))
        self.of_classes = nn.Parameter(width**-0.5 * torch.randn(width, width))
        self.mask_norm = nn.LayerNorm(n_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.tokens, std=0.02)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Map the last of (B, C_i, h_i, w_i) to (B, K, h, w) logits."""
        n, _, height, width = maps[-1].shape
        cells = self.project(maps[-1].flatten(2).transpose(1, 2))
        seen = torch.cat([cells, self.tokens.expand(n, -1, -1)], dim=1)
        for block in self.blocks:
            seen = block(seen)
        seen = self.norm(seen)
        cells, classes = seen[:, : height * width] @ self.of_cells, seen[:, height * width :] @ self.of_classes
        cosine = F.normalize(cells, dim=-1) @ F.normalize(classes, dim=-1).transpose(1, 2)
        logits: Tensor = self.mask_norm(cosine)
        return logits.transpose(1, 2).reshape(n, -1, height, width)


class _Convolution(nn.Sequential):
    """A convolution of odd size, batch normalisation and ReLU."""

    def __init__(self, fan_in: int, width: int, size: int):
        convolution = nn.Conv2d(fan_in, width, size, padding=size // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(width), nn.ReLU())


class UPerNet(nn.Module):
    """UPerNet: pyramid pooling of the last map, and a feature pyramid over all maps.

    Args:
        channels: Channels of each map, finest first.
        n_classes: K.
        width: Channels of the pyramid; 512 in the paper.
    """

    def __init__(self, channels: Sequence[int], n_classes: int, width: int = 512):
        super().__init__()
        *finer, last = channels
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(one), _Convolution(last, width, 1)) for one in _POOLS
        )
        self.bottleneck = _Convolution(last + len(_POOLS) * width, width, 3)
        self.lateral = nn.ModuleList(_Convolution(one, width, 1) for one in finer)
        self.smooth = nn.ModuleList(_Convolution(width, width, 3) for _ in finer)
        self.fuse = _Convolution(len(channels) * width, width, 3)
        self.classify = nn.Sequential(nn.Dropout2d(_DROPOUT), nn.Conv2d(width, n_classes, 1))

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Map (B, C_i, h_i, w_i), finest first, to (B, K, h_0, w_0) logits."""
        pooled = [maps[-1], *(resized(pool(maps[-1]), maps[-1]) for pool in self.pools)]
        merged = [*(layer(one) for layer, one in zip(self.lateral, maps[:-1], strict=True))]
        merged.append(self.bottleneck(torch.cat(pooled, dim=1)))
        for level in range(len(merged) - 1, 0, -1):
            merged[level - 1] = merged[level - 1] + resized(merged[level], merged[level - 1])
        smooth = [*(layer(one) for layer, one in zip(self.smooth, merged[:-1], strict=True)), merged[-1]]
        joined = torch.cat([smooth[0], *(resized(one, smooth[0]) for one in smooth[1:])], dim=1)
        logits: Tensor = self.classify(self.fuse(joined))
        return logits


class Pyramid(nn.Module):
    """Four maps of a quarter, half, whole and double the stride, from four maps of one size (a plain ViT's layers).

    Args:
        channels: Channels C of each map.
    """

    def __init__(self, channels: int):
        super().__init__()

        def twice() -> nn.Module:
            return nn.ConvTranspose2d(channels, channels, 2, stride=2)

        self.scale = nn.ModuleList(
            (
                nn.Sequential(twice(), nn.BatchNorm2d(channels), nn.GELU(), twice()),
                twice(),
                nn.Identity(),
                nn.MaxPool2d(2, ceil_mode=True),
            )
        )

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Map four (B, C, h, w) to (B, C, 4h, 4w), (B, C, 2h, 2w), (B, C, h, w) and (B, C, h/2, w/2)."""
        return [scale(one) for scale, one in zip(self.scale, maps, strict=True)]
