"""Conversion of flax's names and axes (AugReg, big_vision, BiT) to timm's.

Convolution kernels are (height, width, in, out) in flax and (out, in, height, width) in PyTorch; kernels of linear
layers are (in, out) and (out, in). Flax stores query, key and value of attention separately, as (D, heads, D / heads)
each; timm concatenates them. big_vision may store each parameter once for all layers, which are then its first axis.

Sources: Dosovitskiy et al. 2021 and Steiner et al. 2022 (github.com/google-research/vision_transformer), Beyer et al.
2022 (github.com/google-research/big_vision), Kolesnikov et al. 2020 (github.com/google-research/big_transfer). The
tests compare the result with timm's own readers of these files.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, cat

_ROOTS = ("opt/target/", "params/img/", "params/", "")
"""Possible prefixes of the image network's names; an archive may also hold an optimiser's state or a text network."""

_MODULES = (
    (r"embedding", "patch_embed.proj"),
    (r"Transformer/encoder_norm", "norm"),
    (r"pre_logits", "pre_logits.fc"),
    (r"head", "head"),
    (r"MAPHead_0/LayerNorm_0", "attn_pool.norm"),
    (r"MAPHead_0/MlpBlock_0/Dense_0", "attn_pool.mlp.fc1"),
    (r"MAPHead_0/MlpBlock_0/Dense_1", "attn_pool.mlp.fc2"),
    (r"MAPHead_0/MultiHeadDotProductAttention_0/(query|key|value|out)", r"attn_pool.\1"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_0", r"blocks.\1.norm1"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_[12]", r"blocks.\1.norm2"),
    (r"Transformer/encoderblock_(\d+)/MlpBlock_[03]/Dense_0", r"blocks.\1.mlp.fc1"),
    (r"Transformer/encoderblock_(\d+)/MlpBlock_[03]/Dense_1", r"blocks.\1.mlp.fc2"),
    (r"Transformer/encoderblock_(\d+)/MultiHeadDotProductAttention_[01]/(query|key|value|out)", r"blocks.\1.attn.\2"),
    (r"conv_root", "patch_embed.backbone.stem.conv"),
    (r"gn_root", "patch_embed.backbone.stem.norm"),
    (r"block(\d+)/unit(\d+)/conv_proj", r"patch_embed.backbone.stages.\1.blocks.\2.downsample.conv"),
    (r"block(\d+)/unit(\d+)/gn_proj", r"patch_embed.backbone.stages.\1.blocks.\2.downsample.norm"),
    (r"block(\d+)/unit(\d+)/conv([123])", r"patch_embed.backbone.stages.\1.blocks.\2.conv\3"),
    (r"block(\d+)/unit(\d+)/gn([123])", r"patch_embed.backbone.stages.\1.blocks.\2.norm\3"),
    (r"resnet/root_block/standardized_conv2d", "stem.conv"),
    (r"resnet/group_norm", "norm"),
    (r"resnet/head/conv2d", "head.fc"),
    (r"resnet/block(\d+)/unit(\d+)/a/proj/standardized_conv2d", r"stages.\1.blocks.\2.downsample.conv"),
    (r"resnet/block(\d+)/unit(\d+)/([abc])/standardized_conv2d", r"stages.\1.blocks.\2.conv\3"),
    (r"resnet/block(\d+)/unit(\d+)/([abc])/group_norm", r"stages.\1.blocks.\2.norm\3"),
)
_PARAMETERS = {"kernel": "weight", "scale": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}
_WHOLE = {
    "cls": "cls_token",
    "pos_embedding": "pos_embed",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "MAPHead_0/probe": "attn_pool.latent",
}
_JOINED = (("attn.qkv", ("query", "key", "value")), ("attn_pool.kv", ("key", "value")), ("attn_pool.q", ("query",)))


@dataclass
class _Converted:
    """Tensors under timm's names."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    """timm's name -> name in the archive."""
    beside: list[str] = field(default_factory=list)
    """Names in the archive that do not belong to the image network: an optimiser's state, a text network."""


def from_flax(arrays: Mapping[str, Tensor]) -> _Converted:
    """Rename and transpose the arrays of an ``.npz``; arrays with unknown names keep them.

    Args:
        arrays: name in the archive -> tensor with flax's axes.
    """
    result = _Converted()
    root = next((root for root in _ROOTS if f"{root}embedding/kernel" in arrays), "")
    inside = {key: value for key, value in arrays.items() if key.startswith(root)}
    result.beside = [key for key in arrays if key not in inside]
    whole_backbone = any(key.startswith(f"{root}block1/unit") for key in inside)
    for key, value in inside.items():
        for old, tensor in _layers(key, value):
            new, turned = _parameter(old.removeprefix(root), tensor)
            if not whole_backbone:  # R+Ti/16's backbone is only a stem, to which timm gives no name of its own
                new = new.replace("patch_embed.backbone.stem.", "patch_embed.backbone.")
            result.tensors[new], result.source[new] = turned, old
    _join_attention(result)
    return result


def _layers(key: str, value: Tensor) -> list[tuple[str, Tensor]]:
    """Split a parameter that the archive stacks over the layers into one for each layer."""
    if "Transformer/encoderblock/" not in key:
        return [(key, value)]
    return [(key.replace("encoderblock/", f"encoderblock_{i}/"), layer) for i, layer in enumerate(value)]


def _parameter(key: str, value: Tensor) -> tuple[str, Tensor]:
    if key in _WHOLE:
        return _WHOLE[key], value
    module, _, kind = key.rpartition("/")
    if kind not in _PARAMETERS:
        return key, value
    for pattern, template in _MODULES:
        found = re.fullmatch(pattern, module)
        if found:
            name = _count_from_zero(found.expand(template))
            return f"{name}.{_PARAMETERS[kind]}", _turned(name, value, kind)
    return key, value


def _count_from_zero(name: str) -> str:
    """Count blocks and units from zero; flax counts them from one, and BiT names a unit's convolutions a, b and c."""
    name = re.sub(r"stages\.(\d+)\.blocks\.(\d+)", lambda m: f"stages.{int(m[1]) - 1}.blocks.{int(m[2]) - 1}", name)
    return re.sub(r"\.(conv|norm)([abc])$", lambda m: f".{m[1]}{'abc'.index(m[2]) + 1}", name)


def _turned(name: str, value: Tensor, kind: str) -> Tensor:
    if kind != "kernel":
        return value.flatten()  # (1, 1, 1, C) of group norms, (heads, D / heads) of attention
    if name.endswith((".query", ".key", ".value")):
        return value.flatten(1).T  # (D, heads, D / heads)
    if name.endswith(".out"):
        return value.flatten(0, 1).T  # (heads, D / heads, D)
    return value.permute(3, 2, 0, 1) if value.ndim == 4 else value.T


def _join_attention(result: _Converted) -> None:
    """Concatenate query, key and value, and rename the output. Incomplete sets stay as they are and are reported."""
    for key in list(result.tensors):
        name, _, kind = key.rpartition(".")
        place, _, part = name.rpartition(".")
        if part == "out" and place.endswith(("attn", "attn_pool")):
            _move(result, [key], f"{place}.proj.{kind}")
    for joined, parts in _JOINED:
        attention = joined.partition(".")[0]
        for key in list(result.tensors):
            name, _, kind = key.rpartition(".")
            place, _, part = name.rpartition(".")
            if part == parts[0] and place.split(".")[-1] == attention:
                keys = [f"{place}.{other}.{kind}" for other in parts]
                if all(other in result.tensors for other in keys):
                    _move(result, keys, f"{place}.{joined.rpartition('.')[2]}.{kind}")


def _move(result: _Converted, keys: list[str], new: str) -> None:
    tensors = [result.tensors.pop(key) for key in keys]
    result.source[new] = ", ".join(result.source.pop(key) for key in keys)
    result.tensors[new] = cat(tensors) if len(tensors) > 1 else tensors[0]
