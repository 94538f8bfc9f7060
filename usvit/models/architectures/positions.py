"""Position embeddings that Dosovitskiy et al. compared (2021, appendix D.4, Table 8).

timm's ViT has the learned one-dimensional embedding at the stem; this file contains the others. Each is a module
without input that returns the tensor to add to the tokens, (1, P + N, D): P tokens (the class token), then N = H x W
patches. Relative positions are not an embedding but a part of the attention layer.
"""

from typing import Any

import torch
from timm.layers import Attention, resample_abs_pos_embed, trunc_normal_
from torch import Tensor, nn
from torch.nn import functional as F

Grid = tuple[int, int]
"""Numbers of patches: H vertically, W horizontally."""


class Positions(nn.Module):
    """Base class of the position embeddings.

    Args:
        grid: Numbers of patches H, W.
        width: Number of channels D.
        n_prefix: Number of tokens P before the patches.
        prefix_position: True if these tokens have an embedding; otherwise zeros are added to them.
    """

    def __init__(self, grid: Grid, width: int, n_prefix: int = 0, *, prefix_position: bool = True):
        super().__init__()
        self.grid, self.width, self.n_prefix = grid, width, n_prefix
        learned = n_prefix if prefix_position else 0
        self.prefix = _learned(1, learned, width) if learned else None

    def of_patches(self) -> Tensor:
        """Return the embedding of the patches, (1, H * W, D)."""
        raise NotImplementedError

    def resize(self, grid: Grid) -> None:
        """Resize the embedding to another grid."""
        raise NotImplementedError

    def forward(self) -> Tensor:
        patches = self.of_patches()
        if self.prefix is not None:
            return torch.cat([self.prefix, patches], dim=1)
        return F.pad(patches, (0, 0, self.n_prefix, 0))


class Learned(Positions):
    """One-dimensional embedding: one learned vector for each patch in raster order, (1, N, D)."""

    def __init__(self, grid: Grid, width: int, n_prefix: int = 0, *, prefix_position: bool = True):
        super().__init__(grid, width, n_prefix, prefix_position=prefix_position)
        self.table = _learned(1, grid[0] * grid[1], width)

    def of_patches(self) -> Tensor:
        return self.table

    def resize(self, grid: Grid) -> None:
        table = resample_abs_pos_embed(self.table.data, list(grid), list(self.grid), num_prefix_tokens=0)
        self.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        self.grid = grid


class Learned2d(Positions):
    """Two-dimensional embedding: a patch has the vectors of its column (W, D/2) and its row (H, D/2), concatenated."""

    def __init__(self, grid: Grid, width: int, n_prefix: int = 0, *, prefix_position: bool = True):
        if width % 2:
            raise ValueError(f"learned_2d positions consist of two halves, but the width {width} is odd")
        super().__init__(grid, width, n_prefix, prefix_position=prefix_position)
        self.x_table = _learned(grid[1], width // 2)
        self.y_table = _learned(grid[0], width // 2)

    def of_patches(self) -> Tensor:
        height, width = self.grid
        x = self.x_table[None].expand(height, -1, -1)
        y = self.y_table[:, None].expand(-1, width, -1)
        return torch.cat([x, y], dim=-1).flatten(0, 1)[None]

    def resize(self, grid: Grid) -> None:
        self.x_table = _stretched(self.x_table, grid[1])
        self.y_table = _stretched(self.y_table, grid[0])
        self.grid = grid


class SinCos2d(Positions):
    """Fixed embedding: [sin(x w), cos(x w), sin(y w), cos(y w)] with D/4 frequencies w_i = 10000^(-i / (D/4)).

    It equals that of MAE's public code (util/pos_embed.py), for encoder and decoder, and of MoCo v3; big_vision's
    ``posemb_sincos_2d`` divides i by D/4 - 1 instead. Nothing is learned, so the tokens before the patches get zeros,
    and the table of another grid is simply computed.
    """

    table: Tensor

    def __init__(self, grid: Grid, width: int, n_prefix: int = 0, *, prefix_position: bool = True):
        if width % 4:
            raise ValueError(f"sincos_2d positions need a width that is a multiple of 4, not {width}")
        super().__init__(grid, width, n_prefix, prefix_position=False)
        self.register_buffer("table", sincos_2d(grid, width), persistent=False)

    def of_patches(self) -> Tensor:
        return self.table

    def resize(self, grid: Grid) -> None:
        self.table = sincos_2d(grid, self.width).to(self.table)
        self.grid = grid


def sincos_2d(grid: Grid, width: int) -> Tensor:
    """Compute the table of ``SinCos2d``: (1, H * W, D) float32 in [-1, 1]."""
    quarter = width // 4
    frequency = 10_000.0 ** (-torch.arange(quarter) / quarter)
    y, x = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    x, y = x.reshape(-1, 1) * frequency, y.reshape(-1, 1) * frequency
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)[None]


class AddPositions:
    """Hook that adds positions to the input of a layer ("at the beginning of each layer", D.4).

    It is a class rather than a closure so that a copy of the network refers to its own positions.
    """

    def __init__(self, positions: nn.Module):
        self.positions = positions

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0] + self.positions(), *inputs[1:])


class RelativeAttention(Attention):
    """Attention with one-dimensional relative positions (D.4).

    A = softmax((Q K^T + S) / sqrt(d)),  S_ij = q_i . r_(i - j) for patches i, j in raster order; r: (2 N - 1, d)

    "We use the original query (the content of query), but use relative positional embeddings as keys." The paper does
    not state the following, which was chosen here: each layer has its own r, which its heads share; pairs with the
    class token have S = 0, because the class token has no position.
    """

    def __init__(self, width: int, heads: int, n_patches: int):
        super().__init__(width, num_heads=heads, qkv_bias=True)
        self.relative = _learned(2 * n_patches - 1, width // heads)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        refuse_mask(attn_mask, is_causal)  # x: (B, P + N, D)
        n_patches = (len(self.relative) + 1) // 2
        n_prefix = x.shape[1] - n_patches
        query, key, value = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        by_offset = query[:, :, n_prefix:] @ self.relative.T  # (B, heads, N, 2 N - 1)
        place = torch.arange(n_patches, device=x.device)
        offset = place[:, None] - place + n_patches - 1  # (N, N), of 0 ... 2 N - 2
        extra = by_offset.gather(-1, offset.expand(*by_offset.shape[:3], -1))
        extra = F.pad(extra * self.scale, (n_prefix, 0, n_prefix, 0))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=extra.to(query.dtype))
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def resize(self, n_patches: int) -> None:
        """Resize the table of offsets to another number of patches, by linear interpolation."""
        self.relative = _stretched(self.relative, 2 * n_patches - 1)


def refuse_mask(attn_mask: Tensor | None, is_causal: bool) -> None:
    """Raise ``ValueError`` if timm's block passes an attention mask, which these layers do not support."""
    if attn_mask is not None or is_causal:
        raise ValueError("relative, axial and talking-heads attention do not support a mask")


def _learned(*shape: int) -> nn.Parameter:
    """Initialise a position table as timm does: a truncated normal distribution with standard deviation 0.02."""
    return nn.Parameter(trunc_normal_(torch.empty(*shape), std=0.02))


def _stretched(table: nn.Parameter, length: int) -> nn.Parameter:
    """Interpolate rows (n, d) linearly to (length, d); the first and the last row stay the same."""
    rows = F.interpolate(table.data.T[None], size=length, mode="linear", align_corners=True)[0].T.contiguous()
    return nn.Parameter(rows, requires_grad=table.requires_grad)
