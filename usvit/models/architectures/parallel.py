"""Parallel blocks: several attentions side by side, then several MLPs (Three things, section 3, eq. 2).

    x  <- x + sum_b attn_b(LN_b(x))
    x  <- x + sum_b ffn_b(LN'_b(x))

timm's ``ParallelThingsBlock`` computes one branch after the other. A few large products give the same numbers (Table 4
of the paper: up to 47% more images per second at small batches), because

    W_b LN_b(x) + c_b                 = (W_b diag(g_b)) n + (W_b h_b + c_b),   n = (x - mean) / sd, the same for all b
    sum_b l_b * (P_b a_b + p_b)       = [l_1 P_1, l_2 P_2, ...] [a_1; a_2; ...] + sum_b l_b p_b

where g and h are the scale and shift of the layer normalisation, and l is the factor of LayerScale.
"""

from collections.abc import Callable
from typing import Any

import torch
from timm.layers import Attention, LayerScale
from timm.models.vision_transformer import ParallelThingsBlock
from torch import Tensor, nn
from torch.nn import functional as F

_Folded = tuple[Tensor, ...]
"""Weight and bias of four products: queries, keys and values; attention's projection; the MLP's two layers."""


class ParallelBlock(ParallelThingsBlock):
    """timm's parallel block, (B, T, D) -> (B, T, D), which can also run its branches at once (``fuse_branches``).

    The weights and their names stay the same, and so does the result except for rounding. In training with stochastic
    depth or dropout each branch is dropped independently, so the block then runs branch by branch.
    """

    attns: Any
    ffns: Any
    fused = False
    _kept: _Folded | None = None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        attn = self.attns[0]
        drops = self.training and not (isinstance(attn.drop_path, nn.Identity) and attn.attn.proj_drop.p == 0)
        if not self.fused or drops or args or kwargs:
            return super().forward(x, *args, **kwargs)
        qkv_w, qkv_b, proj_w, proj_b, fc1_w, fc1_b, fc2_w, fc2_b = self._folded()
        norm, attn = self.attns[0].norm, self.attns[0].attn
        qkv = F.linear(F.layer_norm(x, norm.normalized_shape, eps=norm.eps), qkv_w, qkv_b)
        query, key, value = qkv.unflatten(-1, (3, -1, attn.head_dim)).permute(2, 0, 3, 1, 4)  # branches x heads
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), proj_w, proj_b)
        norm = self.ffns[0].norm
        hidden = F.linear(F.layer_norm(x, norm.normalized_shape, eps=norm.eps), fc1_w, fc1_b)
        return x + F.linear(self.ffns[0].mlp.act(hidden), fc2_w, fc2_b)

    def can_fuse(self) -> bool:
        """Return True if the branches use plain layers: no relative or axial attention, and no shifts of Fixup."""
        return all(type(branch.attn) is Attention and type(branch.attn.proj) is nn.Linear for branch in self.attns)

    def _folded(self) -> _Folded:
        """Return the weights of the large products, cached while nothing can change them, for faster inference.

        If gradients are enabled, the weights are joined at each call, so that gradients reach the branches.
        """
        if torch.is_grad_enabled() or self.training:
            return self._fold()
        if self._kept is None:
            self._kept = self._fold()
        return self._kept

    def _fold(self) -> _Folded:
        with torch.autocast(self.attns[0].norm.weight.device.type, enabled=False):  # join in the weights' own precision
            attns = [(branch.norm, branch.attn.qkv, branch.attn.proj, branch.ls) for branch in self.attns]
            ffns = [(branch.norm, branch.mlp.fc1, branch.mlp.fc2, branch.ls) for branch in self.ffns]
            qkv_w, qkv_b, proj_w, proj_b = _joined(attns)
            # Branch by branch [q, k, v] -> all branches' q, then k, then v.
            branches, three_width = len(attns), attns[0][1].out_features
            qkv_w = qkv_w.view(branches, 3, three_width // 3, -1).transpose(0, 1).flatten(0, 2)
            qkv_b = qkv_b.view(branches, 3, three_width // 3).transpose(0, 1).flatten()
            return (qkv_w, qkv_b, proj_w, proj_b, *_joined(ffns))

    def train(self, mode: bool = True) -> "ParallelBlock":
        self._kept = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> "ParallelBlock":
        self._kept = None  # moved to another device or type
        return super()._apply(fn, *args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._kept = None
        super()._load_from_state_dict(*args, **kwargs)


def _joined(branches: list[tuple[Any, Any, Any, Any]]) -> _Folded:
    """Stack the branches' first layers with their norms folded in; concatenate the second layers with LayerScale."""
    w_in, b_in, w_out, b_out = [], [], [], []
    for norm, first, second, scale in branches:
        w_in.append(first.weight * norm.weight)
        b_in.append(first.weight @ norm.bias + first.bias)
        by = scale.gamma if isinstance(scale, LayerScale) else torch.ones_like(second.bias)
        w_out.append(by[:, None] * second.weight)
        b_out.append(by * second.bias)
    return torch.cat(w_in), torch.cat(b_in), torch.cat(w_out, dim=1), torch.stack(b_out).sum(0)


def fuse_branches(model: nn.Module, on: bool = True) -> int:
    """Run the branches of a network's parallel blocks at once, or switch back to one after the other.

    This is for inference. Without gradients, each block caches a joined copy of its weights between calls. The copy is
    dropped when the network returns to training mode, moves to another device or type, or loads weights. After any
    other change of the weights, such as an optimiser's step in eval mode, call this function again.

    Args:
        model: Network, changed in place; its state dict stays the same.
        on: True to run the branches at once, False to run them one after the other.

    Returns:
        Number of blocks that now run at once; 0 if ``on`` is False or no block has parallel, plain attention.
    """
    blocks = [module for module in model.modules() if isinstance(module, ParallelBlock) and module.can_fuse()]
    for block in blocks:
        block.fused, block._kept = on, None
    return len(blocks) if on else 0
