"""Stochastic depth and dropout of a network that timm has built: rates that its own options cannot say."""

import re
from collections.abc import Iterator
from typing import Literal

from timm.layers import DropPath
from torch import nn

Schedule = Literal["model", "linear", "uniform"]

BRANCH = re.compile(r"(\.(row|column))?(\.(attns|ffns)\.\d+)?$")
"""Behind a layer's name where its parts have a stochastic depth of their own (axial and parallel blocks)."""
DROPOUTS = ("pos_drop", "proj_drop", "drop1", "drop2")
"""timm's names: after the position embedding, after attention's projection, after the MLP's two layers."""


def set_drop_path(model: nn.Module, rate: float, schedule: Schedule) -> None:
    """Give the layers of a network their rates of stochastic depth.

    ``linear``: layer l of L has ``rate`` (l - 1) / (L - 1) (Huang et al. 2016; DeiT); ``uniform``: ``rate`` in each
    (thesis, from chapter 3 on; DeiT III). The layers are those that timm's own schedule reaches, with the others of the
    same stack, whose first it leaves out; so CaiT's class-attention has none (thesis, section 3.5).

    Args:
        model: built with ``drop_path_rate=rate``; changed in place.
        rate: in [0, 1).
        schedule: ``model`` leaves the network as it is.

    Raises:
        ValueError: the network has no stochastic depth.
    """
    if schedule == "model" or not rate:
        return
    layers = _layers(model)
    reached = {
        _stack(name) for name, places in layers.items() for place in places if isinstance(getattr(*place), DropPath)
    }
    # timm's linear schedule gives a single layer nothing: there are no others to tell its stack by.
    layers = {name: places for name, places in layers.items() if _stack(name) in reached or not reached}
    if not layers:
        raise ValueError("drop_path_rate: the network has no stochastic depth")
    for index, places in enumerate(layers.values()):
        own = rate if schedule == "uniform" else rate * index / max(len(layers) - 1, 1)
        for owner, attribute in places:
            setattr(owner, attribute, DropPath(own) if own else nn.Identity())


def _layers(model: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """Name of each layer, in order -> where its stochastic depth stands: modules, and the attributes of each."""
    layers: dict[str, list[tuple[nn.Module, str]]] = {}
    for name, module in model.named_modules():
        for attribute in _places(module):
            layers.setdefault(BRANCH.sub("", name), []).append((module, attribute))
    return layers


def _places(module: nn.Module) -> Iterator[str]:
    # A ResNet's block without stochastic depth has None there, which is no module.
    for attribute in [*module.__dict__, *module._modules]:
        if re.fullmatch(r"drop_path\d?", attribute):
            value = getattr(module, attribute)
            if value is None or isinstance(value, (DropPath, nn.Identity)):
                yield attribute


def _stack(name: str) -> str:
    return name.partition(".")[0].rstrip("0123456789")  # the stages of a ResNet are one stack


def set_dropout(model: nn.Module, rate: float) -> None:
    """Drop numbers after the position embedding, attention's projection and each layer of the MLPs.

    "Applied after every dense layer except for the qkv-projections and directly after adding positional to patch
    embeddings" (Dosovitskiy et al. 2021, appendix B.1). The head and its pooling have none.

    Args:
        model: changed in place.
        rate: in [0, 1).

    Raises:
        ValueError: the network has no such places.
    """
    if not rate:
        return
    places = [
        module
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in DROPOUTS and isinstance(module, nn.Dropout) and not name.startswith("attn_pool")
    ]
    if not places:
        raise ValueError("drop_rate: the network has no dropout")
    for place in places:
        place.p = rate
