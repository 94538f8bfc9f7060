"""Groups of parameters of an optimizer: with and without weight decay, by layer, and the hidden matrices of Muon.

What a parameter is decides, not the number of its axes: timm's ResMLP stores its scales as (1, 1, D), and a position
table is a matrix for its shape alone. ``docs/explanation/weight-decay.md`` compares the groups with those of the public
codes.
"""

import re
from collections import defaultdict
from typing import Any, Literal

from timm.models import group_parameters
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from usvit.config import OptimConfig
from usvit.errors import UsvitError
from usvit.training.initial_weights import head_parameters

_ParameterKind = Literal["matrix", "bias", "scale", "embedding"]
"""``matrix``: a linear map or a convolution; ``bias``: the shift of its outputs; ``scale``: a scale or shift of
normalization, affine or LayerScale layers; ``embedding``: a table of positions, a token, or a learned query."""

_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _NormBase)
_BIAS = re.compile(r"bias|[a-z0-9]+_bias")
_SCALE = re.compile(r"original0|weight_g|ls\d*|gamma.*|alpha|beta")
"""Lengths of the rows of weight normalization, LayerScale, and affine layers."""
_EMBEDDING = re.compile(r".*(token|embed|position|latent|queries|relative|rel_pos|attention_biases).*")
_NOT_HIDDEN = re.compile(rf"patch_embed|stem|{_EMBEDDING.pattern}|.*bias.*")
"""Parts of names of parameters that are no hidden matrices: patch and position embeddings, tokens and biases."""
_LAST_NORM = re.compile(r"(norm|fc_norm)\..*")


def parameter_kinds(model: nn.Module) -> dict[str, _ParameterKind]:
    """Return what each parameter of a network is, by its name.

    Embeddings are the names that the network, or a part of it, returns from ``no_weight_decay()`` (timm's convention),
    and what is called a token, a position and the like.

    Args:
        model: any module; networks of timm and parts of a pre-training included.

    Example:
        >>> from torch import nn
        >>> parameter_kinds(nn.Sequential(nn.Linear(3, 1), nn.LayerNorm(1)))
        {'0.weight': 'matrix', '0.bias': 'bias', '1.weight': 'scale', '1.bias': 'scale'}
    """
    named: set[str] = set()
    kinds: dict[str, _ParameterKind] = {}
    modules = list(model.named_modules())
    for prefix, module in modules:
        own: Any = getattr(module, "no_weight_decay", None)
        named |= {f"{prefix}.{name}" if prefix else name for name in own()} if callable(own) else set()
    for prefix, module in modules:
        for leaf, parameter in module.named_parameters(recurse=False):
            name = f"{prefix}.{leaf}" if prefix else leaf
            kinds[name] = "embedding" if name in named else _kind(module, leaf, parameter)
    return {name: kinds[name] for name, _ in model.named_parameters()}


def _kind(module: nn.Module, leaf: str, parameter: nn.Parameter) -> _ParameterKind:
    if isinstance(module, _NORMS) or _SCALE.fullmatch(leaf):
        return "scale"
    if isinstance(module, nn.Embedding):
        return "embedding"
    if isinstance(module, nn.Linear | _ConvNd) and leaf == "weight":
        return "matrix"
    if _EMBEDDING.fullmatch(leaf):
        return "embedding"
    if _BIAS.fullmatch(leaf):
        return "bias"
    # A matrix of rank one is still a matrix (an adapter of rank 1); (D,), (1, 1, D) and (D, 1, 1) are scales.
    return "scale" if parameter.ndim != 2 and sum(side > 1 for side in parameter.shape) <= 1 else "matrix"


def decayed(model: nn.Module, *, embeddings: bool = False) -> set[str]:
    """Return the names of the parameters that weight decay draws to zero: matrices, and embeddings if asked for."""
    kinds = ("matrix", "embedding") if embeddings else ("matrix",)
    return {name for name, kind in parameter_kinds(model).items() if kind in kinds}


def hidden_matrices(model: nn.Module) -> set[str]:
    """Return the names of the trained matrices between the embeddings and the heads of a network.

    The matrices of adapters (LoRA) are among them; kernels of convolutions are not.
    """
    heads = head_parameters(model)
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
        and parameter.ndim == 2
        and min(parameter.shape) > 1
        and id(parameter) not in heads
        and not any(map(_NOT_HIDDEN.fullmatch, name.split(".")))
    }


def parameter_groups(model: nn.Module, config: OptimConfig, by_adamw: set[str]) -> list[dict[str, object]]:
    """Divide the trainable parameters into the groups of an optimizer.

    Args:
        model: the network.
        config: ``weight_decay``, ``decay_embeddings`` and ``layer_decay``.
        by_adamw: names of the parameters that Muon leaves to AdamW.

    Returns:
        Groups with ``params`` and ``weight_decay``; with ``layer_decay`` also ``lr_scale``, and ``use_fallback`` for
        those of AdamW.

    Raises:
        UsvitError: layer-wise decay is set, but the network does not assign its parameters to layers.
    """
    scales = None if config.layer_decay is None else rate_scales(model, config.layer_decay)
    drawn = decayed(model, embeddings=config.decay_embeddings) if config.weight_decay else set()
    groups: dict[tuple[bool, float, bool], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[name in by_adamw, 1.0 if scales is None else scales[name], name in drawn].append(parameter)
    return [
        {"params": parameters, "weight_decay": config.weight_decay if with_decay else 0.0}
        | ({} if scales is None else {"lr_scale": scale})
        | ({"use_fallback": True} if fallback else {})
        for (fallback, scale, with_decay), parameters in sorted(groups.items(), key=lambda group: group[0])
    ]


def rate_scales(model: nn.Module, layer_decay: float) -> dict[str, float]:
    """Return the factor of each parameter's learning rate: ``layer_decay`` ** (number of layers above its own).

    The layers are those of the network's ``group_matcher`` (timm's convention), except that the last normalization
    belongs to the head, whose factor is 1, as in the public codes of BEiT and MAE. The last block has ``layer_decay``.

    Raises:
        UsvitError: the network does not assign its parameters to layers.
    """
    check_layers(model)
    layers: dict[str, float] = group_parameters(model, model.group_matcher(coarse=False), reverse=True)  # type: ignore[operator]
    head = max(layers.values())
    layers = {name: head if _LAST_NORM.fullmatch(name) else layer for name, layer in layers.items()}
    order = sorted(set(layers.values()) | {head})
    return {name: layer_decay ** (len(order) - 1 - order.index(layer)) for name, layer in layers.items()}


def check_layers(model: nn.Module) -> None:
    """Raise unless the network assigns its parameters to layers; otherwise timm would invent groups.

    Raises:
        UsvitError: the network does not assign them.
    """
    try:
        model.group_matcher(coarse=False)  # type: ignore[operator]
    except (AttributeError, AssertionError) as error:
        raise UsvitError(
            f"This network ({type(model).__name__}) does not assign its parameters to layers, so its learning rate "
            "cannot decay by layer. Set optim.layer_decay to null."
        ) from error
