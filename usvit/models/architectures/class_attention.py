"""Class attention and late insertion of the class token (Touvron 2022, thesis, section 3.6, Table 3.13).

A network of depth 10 + 2 has ten layers of self-attention between patches and two of class attention, which update the
class token alone (eq. 3.8 to 3.12). As an intermediate step, the class token enters an ordinary ViT at a later layer.
The tokens are the class token, then the patches, everywhere; a layer that is not for the class token passes it on.
"""

from typing import Any

import torch
from timm.layers import LayerNorm, LayerScale, Mlp
from timm.models.cait import ClassAttn
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.config import ClassKeys
from usvit.models.architectures.init import start_weights
from usvit.models.architectures.parallel import ParallelBlock


class ClassAttention(ClassAttn):
    """Attention of the first P tokens to all, (B, P + N, D) -> (B, P, D); timm's has P = 1.

    Args:
        width: Number of channels D.
        num_heads: Number of heads.
        n_queries: Number of tokens P that ask: 1, or 2 with a distillation token.
        keys: ``all`` tokens, z = [x_class, x_patches] (eq. 3.13), or the ``patches`` alone (section 3.6.3).
        options: timm's dropouts and biases.
    """

    def __init__(self, width: int, num_heads: int, *, n_queries: int = 1, keys: ClassKeys = "all", **options: Any):
        super().__init__(width, num_heads=num_heads, **{"qkv_bias": True, **options})
        self.n_queries, self.keys = n_queries, keys

    def forward(self, x: Tensor) -> Tensor:
        z = x if self.keys == "all" else x[:, self.n_queries :]
        query, key, value = self._by_head(self.q(x[:, : self.n_queries])), *map(self._by_head, (self.k(z), self.v(z)))
        if self.fused_attn:
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            mixed = (query * self.scale @ key.transpose(-2, -1)).softmax(dim=-1) @ value
        return self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))

    def _by_head(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, heads, T, D / heads)
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class ClassBlock(nn.Module):
    """Layer of class attention and an MLP, (B, 1 + N, D) -> (B, 1 + N, D); the patches stay as they are.

    It has no stochastic depth, as in timm and in the authors' code.

    Args:
        width: Number of channels D.
        heads: Number of heads.
        mlp: Hidden width of the MLP.
        keys: See ``ClassAttention``.
        layer_scale: Initial value of LayerScale; None for no LayerScale.
    """

    def __init__(self, width: int, heads: int, mlp: int, *, keys: ClassKeys, layer_scale: float | None):
        super().__init__()
        self.norm1 = LayerNorm(width, eps=1e-6)
        self.attn = ClassAttention(width, heads, keys=keys)
        self.ls1 = nn.Identity() if layer_scale is None else LayerScale(width, layer_scale)
        self.norm2 = LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, mlp)
        self.ls2 = nn.Identity() if layer_scale is None else LayerScale(width, layer_scale)
        start_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        token = x[:, :1] + self.ls1(self.attn(self.norm1(x)))
        token = token + self.ls2(self.mlp(self.norm2(token)))
        return torch.cat([token, x[:, 1:]], dim=1)


class _BeforeClassToken:
    """Mixin of a block before the class token is inserted: it passes the token on, and works on the patches alone."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        patches: Tensor = super().forward(x[:, 1:], *args, **kwargs)  # type: ignore[misc]
        return torch.cat([x[:, :1], patches], dim=1)


class PatchesBlock(_BeforeClassToken, Block):
    """timm's block for the layers before the class token is inserted, (B, 1 + N, D) -> (B, 1 + N, D)."""


class ParallelPatchesBlock(_BeforeClassToken, ParallelBlock):
    """Parallel block for the layers before the class token is inserted, (B, 1 + N, D) -> (B, 1 + N, D)."""
