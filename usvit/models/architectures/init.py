"""Initialisation of weights that timm's own classes do not initialise."""

from timm.layers import trunc_normal_
from torch import nn


def start_weights(module: nn.Module) -> None:
    """Initialise every linear layer and convolution as DeiT and timm do: truncated normal (sd 0.02), zero biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
