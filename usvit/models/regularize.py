"""Set stochastic depth and dropout of a built network, where timm's own options are not sufficient."""

import re
from collections.abc import Iterator
from typing import Literal

from timm.layers import DropPath
from torch import nn

Schedule = Literal["model", "linear", "uniform"]

_BRANCH = re.compile(r"(\.(row|column))?(\.(attns|ffns)\.\d+)?$")
"""Suffix of a layer's name if its parts have separate stochastic depth (axial and parallel blocks)."""
_DROPOUTS = ("pos_drop", "proj_drop", "drop1", "drop2")
"""timm's names of dropout after the position embedding, attention's projection, and the MLP's two layers."""


def set_drop_path(model: nn.Module, rate: float, schedule: Schedule) -> None:
    """Set the rate of stochastic depth of each layer.

    With ``linear``, layer l of L has ``rate`` (l - 1) / (L - 1) (Huang et al. 2016; DeiT). With ``uniform``, each layer
    has ``rate`` (thesis, from chapter 3 on; DeiT III). The layers are those to which timm's schedule assigns a rate,
    and the other layers of the same stack, because timm assigns no rate to the first. CaiT's class-attention therefore
    has no stochastic depth (thesis, section 3.5).

    Args:
        model: Network built with ``drop_path_rate=rate``; changed in place.
        rate: Rate in [0, 1).
        schedule: ``linear``, ``uniform``, or ``model``, which leaves the network unchanged.

    Raises:
        ValueError: If the network does not support stochastic depth.
    """
    if schedule == "model" or not rate:
        return
    layers = _layers(model)
    reached = {
        _stack(name) for name, places in layers.items() for place in places if isinstance(getattr(*place), DropPath)
    }
    # timm's linear schedule gives a single layer the rate 0, so its stack cannot be recognised by another layer.
    layers = {name: places for name, places in layers.items() if _stack(name) in reached or not reached}
    if not layers:
        raise ValueError("drop_path_rate: the network has no stochastic depth")
    for index, places in enumerate(layers.values()):
        own = rate if schedule == "uniform" else rate * index / max(len(layers) - 1, 1)
        for owner, attribute in places:
            setattr(owner, attribute, DropPath(own) if own else nn.Identity())


def _layers(model: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """Map the name of each layer, in order, to the modules and attributes that hold its stochastic depth."""
    layers: dict[str, list[tuple[nn.Module, str]]] = {}
    for name, module in model.named_modules():
        for attribute in _places(module):
            layers.setdefault(_BRANCH.sub("", name), []).append((module, attribute))
    return layers


def _places(module: nn.Module) -> Iterator[str]:
    # In a ResNet's block without stochastic depth the attribute is None, which is not a module.
    for attribute in [*module.__dict__, *module._modules]:
        if re.fullmatch(r"drop_path\d?", attribute):
            value = getattr(module, attribute)
            if value is None or isinstance(value, (DropPath, nn.Identity)):
                yield attribute


def _stack(name: str) -> str:
    return name.partition(".")[0].rstrip("0123456789")  # the stages of a ResNet are one stack


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set dropout after the position embedding, attention's projection and each layer of the MLPs.

    "Applied after every dense layer except for the qkv-projections and directly after adding positional to patch
    embeddings" (Dosovitskiy et al. 2021, appendix B.1). The head and its pooling have no dropout.

    Args:
        model: Network, changed in place.
        rate: Rate in [0, 1).

    Raises:
        ValueError: If the network has no such dropout layers.
    """
    if not rate:
        return
    places = [
        module
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in _DROPOUTS and isinstance(module, nn.Dropout) and not name.startswith("attn_pool")
    ]
    if not places:
        raise ValueError("drop_rate: the network has no dropout")
    for place in places:
        place.p = rate
