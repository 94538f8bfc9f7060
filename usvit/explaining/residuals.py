"""Contribution of the residual branches of a transformer: norm of a branch over norm of what it is added to."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from timm.models.cait import LayerScaleBlock, LayerScaleBlockClassAttn
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.models import ClassBlock


@dataclass(frozen=True)
class BranchRatios:
    """Ratios of one layer."""

    layer: str
    attention: Tensor
    """(B,) float64, not negative: |g(x)| / |x| for the attention branch g and its input x."""
    mlp: Tensor
    """(B,) of the MLP branch."""


def branch_ratios(model: nn.Module, images: Tensor, name: str) -> list[BranchRatios]:
    """Compute the ratio of norms |g_l(x)| / |x| of both residual branches of each layer, x <- x + g_l(x).

    g_l includes LayerScale. The norm is Euclidean, over all tokens and channels of one image; the thesis does not say
    over what it is taken. A layer of class attention changes the class (and distillation) token alone, so there the
    norms are over this token. A branch is computed as the difference of what follows and what precedes it, in double
    precision, because LayerScale can make it a millionth of its input.

    Args:
        model: a transformer of layers with an attention branch and then an MLP branch.
        images: (B, 3, S, S), normalised.
        name: name of the network in error messages.

    Raises:
        UsvitError: the network has other layers.

    Source: Touvron (2022), thesis, section 3.5.3 ("Statistics of branch weighting"), Fig. 3.6.
    """
    model = copy.deepcopy(model).double().eval()
    blocks = [
        (layer, module)
        for layer, module in model.named_modules()
        if isinstance(module, Block | LayerScaleBlock | LayerScaleBlockClassAttn | ClassBlock)
    ]
    if not blocks:
        raise UsvitError(
            f"{name} has no layers of an attention branch and then an MLP branch, so the method residuals does not "
            "apply to it. Use another --method: gradcam or occlusion for any network."
        )
    seen: dict[str, list[Tensor]] = {layer: [] for layer, _ in blocks}

    def keep(layer: str, x: Any) -> None:
        seen[layer].append(x)

    for layer, block in blocks:
        for norm in (block.norm1, block.norm2):
            norm.register_forward_pre_hook(lambda _, inputs, layer=layer: keep(layer, inputs[0]))
        block.register_forward_hook(lambda _, inputs, output, layer=layer: keep(layer, output))
    with torch.no_grad():
        model(images.double())
    return [_ratios(layer, *seen[layer]) for layer, _ in blocks]


def _ratios(layer: str, x: Tensor, between: Tensor, after: Tensor) -> BranchRatios:
    """Return the ratios from the input of both norms and the output of a layer, each (B, T, D)."""
    if between.shape[1] < x.shape[1]:  # class attention: the first tokens ask
        x, after = x[:, : between.shape[1]], after[:, : between.shape[1]]
    else:  # a layer before the class token passes it on
        after = after[:, after.shape[1] - between.shape[1] :]
    return BranchRatios(layer, _norm(between - x) / _norm(x), _norm(after - between) / _norm(between))


def _norm(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1)
