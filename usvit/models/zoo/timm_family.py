"""Family of any network of timm, from its architecture. Functions import timm, which takes seconds."""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from usvit.models.spec import Family

if TYPE_CHECKING:
    from torch import nn

_ATTENTION_SHARE = 0.18
"""Share of the parameters in self-attention from which on a network is a transformer. A ViT has a third of them there,
Swin 0.31, MaxViT and FastViT 0.19 or more; ResNets with some attention (BoTNet) have 0.17 or less, CNNs none."""

_PROJECTIONS = (
    {"qkv"},
    {"qkvs"},
    {"qkv_proj"},
    {"to_qkv"},
    {"in_proj_weight"},
    {"q", "kv"},
    {"qk", "v"},
    {"q", "k", "v"},
    {"q_proj", "kv_proj"},
    {"q_proj", "k_proj", "v_proj"},
    {"query", "key", "value"},
)
"""Names, in timm's attention layers, of the modules or parameters that project to queries, keys and values."""
_POOLING = ("attn_pool", "attnpool", "global_pool", "head")
_VITS = re.compile("vision_transformer.*|deit")
"""Files of timm whose networks are transformers, whatever their blocks: some compute attention and MLP in one layer."""


@cache
def family_of(architecture: str) -> Family:
    """Return the family of timm's network ``architecture``, which is built without memory to look at its layers.

    A network is a transformer if self-attention, outside a pooling or a head, holds at least ``_ATTENTION_SHARE`` of
    its parameters. It is ``hierarchical`` unless all its layers have tokens of one width and one scale (``vit``).
    """
    import timm
    import torch

    module = timm.models.model_entrypoint(architecture).__module__.rpartition(".")[2]
    if "hybrid" in module:
        return "hybrid"
    if _VITS.fullmatch(module):
        return "vit"
    if module == "mlp_mixer":
        return "mlp"
    with torch.device("meta"):
        model = timm.create_model(architecture, num_classes=0)
    held = {id(one): one.numel() for layer in _attention(model) for one in layer.parameters()}
    if sum(held.values()) < _ATTENTION_SHARE * sum(one.numel() for one in model.parameters()):
        return "cnn"
    levels: list[dict[str, object]] = list(getattr(model, "feature_info", None) or [])
    return "vit" if len({(level["num_chs"], level["reduction"]) for level in levels}) == 1 else "hierarchical"


def _attention(model: "nn.Module") -> Iterator["nn.Module"]:
    for name, layer in model.named_modules():
        if any(part.startswith(_POOLING) for part in name.split(".")):
            continue
        inside = {key for key, _ in layer.named_children()} | {key for key, _ in layer.named_parameters(recurse=False)}
        if any(names <= inside for names in _PROJECTIONS):
            yield layer
