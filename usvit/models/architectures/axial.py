"""Axial attention: along the rows, then along the columns (Dosovitskiy et al. 2021, appendix D.6).

"Instead of a self-attention followed by an MLP, we have a row-self-attention plus an MLP followed by a
column-self-attention plus an MLP": a layer has twice the parameters, and attends to W + H patches instead of H x W.
A class token lies in no row, so the network has none.
"""

from collections.abc import Callable
from typing import Any, Literal

from timm.layers import Attention
from torch import Tensor, nn

from usvit.models.architectures.positions import refuse_mask


class AxialAttention(Attention):
    """Attention among the patches of one row, or of one column: (B, H * W, D) -> (B, H * W, D).

    The block around it sees all patches of an image together, so that stochastic depth drops a block for an image and
    not for a row.
    """

    grid: tuple[int, int] = (0, 0)
    """Patches H, W; set by the network."""

    def __init__(self, width: int, heads: int, axis: Literal["row", "column"]):
        super().__init__(width, num_heads=heads, qkv_bias=True)
        self.axis = axis

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        refuse_mask(attn_mask, is_causal)
        x = x.unflatten(1, self.grid)  # (B, H, W, D)
        if self.axis == "row":
            return super().forward(x.flatten(0, 1)).view(x.shape).flatten(1, 2)
        x = x.transpose(1, 2)  # (B, W, H, D)
        return super().forward(x.flatten(0, 1)).view(x.shape).transpose(1, 2).flatten(1, 2)


class AxialBlock(nn.Sequential):
    """A transformer block along the rows, and one along the columns: (B, H * W, D) -> (B, H * W, D).

    Args:
        block_fn: makes each of the two (timm's ``Block``, or the parallel one).
        options: of both, as timm's ``VisionTransformer`` gives them to its blocks.
    """

    def __init__(self, *, block_fn: Callable[..., nn.Module], **options: Any):
        super().__init__()
        self.row = block_fn(**options)
        self.column = block_fn(**options)
        replace_attention(self.row, lambda old: AxialAttention(old.qkv.in_features, old.num_heads, "row"))
        replace_attention(self.column, lambda old: AxialAttention(old.qkv.in_features, old.num_heads, "column"))


def replace_attention(module: nn.Module, make: Callable[[Attention], Attention]) -> None:
    """Exchange every attention layer under ``module``; the new one takes over the old one's projections.

    By exchange and not by an argument, because timm 1.0.20 has none for it.
    """
    for parent in list(module.modules()):
        old = getattr(parent, "attn", None)
        if isinstance(old, Attention):
            new = make(old)
            new.qkv, new.proj = old.qkv, old.proj
            parent.attn = new
