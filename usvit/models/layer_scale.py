"""LayerScale with the fixed values of an earlier training.

Source: Touvron (2022), PhD thesis, section 3.5.3 ("Re-training"): a control that asks whether the values matter, or
that they are learnt.
"""

import re

import torch
from torch import nn

from usvit.errors import UsvitError

_LAYER_SCALE = re.compile(r"(?:.+\.)?(?:ls\d?|gamma_?\d?)")
"""timm's names and ours: ``ls1.gamma`` (ViT), ``gamma_1`` (CaiT, BEiT), ``gamma`` (ConvNeXt), ``ls1`` (ResMLP)."""


def layer_scale_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights of the residual branches by name: (D,) for LayerScale, (1,) for one weight per branch."""
    return {name: values for name, values in model.named_parameters() if _LAYER_SCALE.fullmatch(name)}


@torch.no_grad()
def fix_layer_scale(model: nn.Module, source: nn.Module) -> None:
    """Set the values of LayerScale to those of another network, and freeze them.

    Args:
        model: Network; changed in place.
        source: Network of the same architecture.

    Raises:
        UsvitError: If the network has no LayerScale.
    """
    parameters, values = layer_scale_parameters(model), layer_scale_parameters(source)
    if not parameters:
        raise UsvitError(
            f"This network ({type(model).__name__}) has no LayerScale whose values model.layer_scale_from could set: "
            "set model.layer_scale_from to null, or model.vit.layer_scale of a ViT to a number, such as 1e-5."
        )
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
        parameter.requires_grad_(False)
