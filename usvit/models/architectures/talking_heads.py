"""Talking heads: linear maps of the heads before and after the softmax (Shazeer et al. 2020; thesis, section 3.7).

CaiT uses them in all self-attention, and Table 3.20 of the thesis adds them to a DeiT-S.
"""

from timm.models.cait import TalkingHeadAttn
from torch import Tensor

from usvit.models.architectures.init import start_weights
from usvit.models.architectures.positions import refuse_mask


class TalkingHeads(TalkingHeadAttn):
    """timm's talking heads with the interface of its ``Attention``: (B, T, D) -> (B, T, D)."""

    def __init__(self, width: int, heads: int):
        super().__init__(width, num_heads=heads, qkv_bias=True)
        start_weights(self)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        refuse_mask(attn_mask, is_causal)
        return super().forward(x)
