"""How weights begin, where it is not timm's own class that says so."""

from timm.layers import trunc_normal_
from torch import nn


def start_weights(module: nn.Module) -> None:
    """Truncated normals of 0.02 and zero biases in every linear layer and convolution, as DeiT and timm start a ViT."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
