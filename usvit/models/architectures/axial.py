"""Axial attention: along the rows, then along the columns (Dosovitskiy et al. 2021, appendix D.6).

"Instead of a self-attention followed by an MLP, we have a row-self-attention plus an MLP followed by a
column-self-attention plus an MLP": a layer has twice the parameters, and attends to W + H patches instead of H x W.
A class token belongs to no row, so the network does not have one.
"""

from collections.abc import Callable
from typing import Any, Literal

from timm.layers import Attention
from torch import Tensor, nn

from usvit.models.architectures.positions import refuse_mask


class AxialAttention(Attention):
    """Attention among the patches of each row, or of each column: (B, H * W, D) -> (B, H * W, D).

    The enclosing block receives all patches of an image together, so stochastic depth drops a block for a whole image,
    not for a single row.
    """

    grid: tuple[int, int] = (0, 0)
    """Numbers of patches H, W; the network sets them."""

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
    """A transformer block along the rows, then one along the columns: (B, H * W, D) -> (B, H * W, D).

    Args:
        block_fn: Constructor of each of the two blocks (timm's ``Block``, or the parallel one).
        options: Options of both blocks, as timm's ``VisionTransformer`` passes them.
    """

    def __init__(self, *, block_fn: Callable[..., nn.Module], **options: Any):
        super().__init__()
        self.row = block_fn(**options)
        self.column = block_fn(**options)
        replace_attention(self.row, lambda old: AxialAttention(old.qkv.in_features, old.num_heads, "row"))
        replace_attention(self.column, lambda old: AxialAttention(old.qkv.in_features, old.num_heads, "column"))


def replace_attention(module: nn.Module, make: Callable[[Attention], nn.Module]) -> None:
    """Replace every attention layer in ``module`` by ``make(layer)``, which takes over the layer's projections.

    The layers are replaced after construction because timm 1.0.20 has no argument for the attention layer.
    """
    for parent in list(module.modules()):
        old = getattr(parent, "attn", None)
        if isinstance(old, Attention):
            new = make(old)
            new.qkv, new.proj = old.qkv, old.proj
            parent.attn = new
