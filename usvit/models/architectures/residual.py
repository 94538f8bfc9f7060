"""Weights and initialisation of the residual branches: LayerScale and its rivals (thesis, section 3.5, Fig. 3.4).

    x <- x + a * branch(LN(x)),   branch: an attention layer or an MLP

    residual               a                                           tables of the thesis
    layer_scale            D weights, each starts at e                 3.11, 3.12 (lambda = e; lambda = 0)
    layer_scale_uniform    D weights, drawn from U[0, 2 e]             3.12
    scalar                 one weight, starts at e                     3.11 (ReZero: e = 0; alpha = e), 3.12
    fixup                  one weight, starts at 1; own initialisation 3.11
    t_fixup                one weight, starts at 1; own initialisation 3.11

e is ``layer_scale``. All of them keep the layer normalisation, as the thesis adapts them ("we re-introduce these two
ingredients", the other being the warm-up). SkipInit is ReZero without the normalisation, so adapted it is the same.
"""

from collections.abc import Iterator
from typing import Any

import torch
from timm.layers import Attention, LayerScale, Mlp
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.config import ViTShape

OWN_SCALARS = ("fixup", "t_fixup")
"""Values of ``residual`` whose weights start at 1, so that they have no ``layer_scale``."""


class ShiftedLinear(nn.Linear):
    """Linear layer after the addition of one learned number: (..., D) -> (..., D'), W (x + s) + b.

    It takes over the weight and the bias of ``layer``; s, the parameter ``shift``, starts at 0.
    """

    def __init__(self, layer: nn.Linear):
        super().__init__(layer.in_features, layer.out_features, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.shift = nn.Parameter(torch.zeros_like(layer.weight[0, :1]))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x + self.shift, self.weight, self.bias)


def start_value(shape: ViTShape) -> float | None:
    """Return the initial value to build timm's ``LayerScale`` with, which ``weigh_branches`` changes; None for none.

    timm builds no ``LayerScale`` for the value 0.
    """
    if shape.residual in OWN_SCALARS or shape.layer_scale == 0:
        return 1.0
    return shape.layer_scale


def weigh_branches(blocks: nn.Module, shape: ViTShape) -> None:
    """Give the residual branches the weights and the initialisation of ``shape.residual``; change them in place.

    The thesis does not print the details of Fixup and T-Fixup. They are those of their papers, and where these leave
    it open, as follows.

    - Fixup (Zhang et al. 2019): of the L branches, each of m = 2 layers, the first layer is scaled by
      L^(-1 / (2 m - 2)) and the second starts at zero. A scalar bias stands before the second layer; those before the
      first layer and before the activation would repeat the biases of the layer normalisation and of the first layer.
    - T-Fixup (Huang et al. 2020, encoder): all matrices start by Xavier's uniform rule; those of values, projections
      and MLPs are scaled by 0.67 N^(-1/4), N being the number of pairs of attention and MLP. Patch embedding, positions
      and class token are those of DeiT.

    Args:
        blocks: Layers of a ViT, built with ``start_value``.
        shape: Shape of the ViT.
    """
    if shape.residual == "layer_scale" and shape.layer_scale != 0:
        return  # timm's own
    for owner, name, scale in list(_scales(blocks)):
        if shape.residual == "layer_scale":
            nn.init.zeros_(scale.gamma)
        elif shape.residual == "layer_scale_uniform":
            nn.init.uniform_(scale.gamma, 0, 2 * scale.init_values)
        else:
            start = 1.0 if shape.layer_scale is None else shape.layer_scale
            setattr(owner, name, LayerScale(1, start).to(scale.gamma.device))
    if shape.residual == "fixup":
        _fixup(blocks)
    if shape.residual == "t_fixup":
        _t_fixup(blocks)


def _scales(blocks: nn.Module) -> Iterator[tuple[nn.Module, str, LayerScale]]:
    for owner in blocks.modules():
        for name, child in owner.named_children():
            if isinstance(child, LayerScale):
                yield owner, name, child


def _branches(blocks: nn.Module) -> list[Any]:
    return [module for module in blocks.modules() if isinstance(module, Attention | Mlp)]


@torch.no_grad()
def _fixup(blocks: nn.Module) -> None:
    branches = _branches(blocks)
    for branch in branches:
        first, second = ("qkv", "proj") if isinstance(branch, Attention) else ("fc1", "fc2")
        getattr(branch, first).weight.mul_(len(branches) ** -0.5)
        nn.init.zeros_(getattr(branch, second).weight)
        setattr(branch, second, ShiftedLinear(getattr(branch, second)))


@torch.no_grad()
def _t_fixup(blocks: nn.Module) -> None:
    branches = _branches(blocks)
    scale = 0.67 * (len(branches) / 2) ** -0.25
    for branch in branches:
        if isinstance(branch, Attention):
            *plain, value = branch.qkv.weight.chunk(3)  # views of queries, keys and values
            scaled = [value, branch.proj.weight]
        else:
            plain, scaled = [], [branch.fc1.weight, branch.fc2.weight]
        for matrix in plain + scaled:
            nn.init.xavier_uniform_(matrix)
        for matrix in scaled:
            matrix.mul_(scale)
