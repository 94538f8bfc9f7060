"""Renaming of checkpoint tensors from the names of the original repositories to those of the network.

timm does most of this in the ``checkpoint_filter_fn`` of each architecture's file (CaiT, ResMLP, CLIP, DINOv2, Swin);
this module adds what timm does not know. Every change is recorded.
"""

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import timm
from torch import Tensor, nn

from usvit.models.weights.flax import from_flax
from usvit.models.weights.read import Checkpoint

_FILTERS = (
    "checkpoint_filter_fn",
    "checkpoint_filter_fn_classifier",
    "pretrained_filter_fn",
    "_filter_fn",
    "_filter_torchvision_pretrained",
    "spread_query",
)
"""Names, in timm's files and ours, of the function that renames (and resizes) the tensors of a checkpoint."""

_LEFT_OUT = (
    (re.compile(r"decoder_(embed|blocks|norm|pred|pos_embed)(\..*)?"), "belongs to the decoder of pre-training (MAE)"),
    (re.compile(r"mask_token"), "replaced masked patches in pre-training"),
    (re.compile(r"lm_head\..*"), "predicted visual tokens in pre-training (BEiT)"),
    (re.compile(r"(.*\.)?relative_position_index"), "is computed from the image size"),
    (re.compile(r"AuxLogits\..*"), "the second head, used only in training"),
)
_WRAPPER = "model."
_PARALLEL = {  # DeiT's blocks with two branches (models_v2.py), and timm's
    "norm1": "attns.0.norm",
    "norm11": "attns.1.norm",
    "attn": "attns.0.attn",
    "attn1": "attns.1.attn",
    "gamma_1": "attns.0.ls.gamma",
    "gamma_1_1": "attns.1.ls.gamma",
    "norm2": "ffns.0.norm",
    "norm21": "ffns.1.norm",
    "mlp": "ffns.0.mlp",
    "mlp1": "ffns.1.mlp",
    "gamma_2": "ffns.0.ls.gamma",
    "gamma_2_1": "ffns.1.ls.gamma",
}
_EFFICIENTNET = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
_EFFICIENTNET_BLOCK = {  # a block that expands its channels; without expansion, timm counts from the next layer
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_WITHOUT_EXPANSION = {"conv_pwl": "conv_pw", "bn2": "bn1", "bn3": "bn2"}
"""Names of ``_EFFICIENTNET_BLOCK`` -> names in timm's block without expansion."""


@dataclass
class RenamedState:
    """Tensors under the network's names, and how they were renamed."""

    tensors: dict[str, Tensor]
    source: dict[str, str]
    """Name in the network -> name in the file."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Name in the file -> reason why it is not used."""

    def move(self, old: str, new: str) -> None:
        self.tensors[new], self.source[new] = self.tensors.pop(old), self.source.pop(old)

    def skip(self, key: str, why: str) -> None:
        del self.tensors[key]
        self.skipped[self.source.pop(key)] = why


def to_network_names(checkpoint: Checkpoint, model: nn.Module) -> RenamedState:
    """Rename a checkpoint's tensors to the network's names, and leave out those that only pre-training needs.

    Supported are DeiT, DeiT III (also parallel), CaiT, ResMLP, MAE, BEiT and USFM as their authors released them,
    EfficientNet-lite of EfficientNet-PyTorch, AugReg, big_vision and BiT (``flax``), and everything that timm's own
    filters convert. Unknown names are kept.
    """
    if checkpoint.flax:
        converted = from_flax(checkpoint.tensors)
        named = RenamedState(converted.tensors, converted.source)
        named.skipped |= dict.fromkeys(converted.beside, "not part of the image network")
    else:
        named = RenamedState(dict(checkpoint.tensors), {key: key for key in checkpoint.tensors})
    own = set(model.state_dict())
    _without_prefix(named, own)
    for key in list(named.tensors):
        why = next((why for pattern, why in _LEFT_OUT if pattern.fullmatch(key)), None)
        if why and key not in own:
            named.skip(key, why)
    _blocks(named, own)
    _beit(named, own)
    _efficientnet(named, own)
    if "cls_token" in named.tensors and "cls_token" not in own and getattr(model, "num_prefix_tokens", None) == 0:
        named.skip("cls_token", "the network pools its patches and has no class token")
    if "fc_norm.weight" in own and "norm.weight" not in own and "fc_norm.weight" not in named.tensors:
        # Averaged patches are normalised after the mean (BEiT, MAE): the same layer has another name.
        for kind in ("weight", "bias"):
            if f"norm.{kind}" in named.tensors:
                named.move(f"norm.{kind}", f"fc_norm.{kind}")
    return named


def by_timm(named: RenamedState, model: nn.Module) -> None:
    """Let timm's own filter of the architecture rename and resize what is left, and record what it did.

    A filter fails on the tensors of another architecture; the later comparison of names and shapes reports these.
    """
    filter_fn = _timm_filter(model)
    if filter_fn is None:
        return
    before = {id(value): key for key, value in named.tensors.items()}
    takes_model = len(inspect.signature(filter_fn).parameters) > 1
    given = dict(named.tensors)  # filters may remove entries
    try:
        after: dict[str, Tensor] = filter_fn(given, model) if takes_model else filter_fn(given)
    except Exception:
        return
    origin = {key: before.get(id(value), key if key in named.tensors else None) for key, value in after.items()}
    for key in named.tensors:
        if key not in origin.values():
            named.skipped[named.source[key]] = "timm's own loader converts it or leaves it out"
    named.source = {key: named.source[old] if old else "(converted by timm)" for key, old in origin.items()}
    named.tensors = after


def _without_prefix(named: RenamedState, own: set[str]) -> None:
    """Remove ``model.``, the name that a wrapper gave to the whole network (TinyUSFM), if all names begin with it."""
    wrapped = all(key.startswith(_WRAPPER) for key in named.tensors)
    if wrapped and not any(key.startswith(_WRAPPER) for key in own):
        for key in list(named.tensors):
            named.move(key, key.removeprefix(_WRAPPER))


def _blocks(named: RenamedState, own: set[str]) -> None:
    """Rename DeiT III's LayerScale and the branches of parallel blocks."""
    parallel = any(key.startswith("blocks.0.attns.") for key in own)
    for key in list(named.tensors):
        found = re.fullmatch(r"(blocks\.\d+\.)(\w+)(\..*)?", key)
        if not found or key in own:
            continue
        block, part, rest = found[1], found[2], found[3] or ""
        if parallel and part in _PARALLEL:
            named.move(key, block + _PARALLEL[part] + rest)
        elif not parallel and part in ("gamma_1", "gamma_2") and f"{block}ls1.gamma" in own:
            named.move(key, f"{block}ls{part[-1]}.gamma")


def _beit(named: RenamedState, own: set[str]) -> None:
    """Copy BEiT's table of relative positions, which pre-training shares among layers, into every layer."""
    shared = "rel_pos_bias.relative_position_bias_table"
    tables = [key for key in own if re.fullmatch(r"blocks\.\d+\.attn\.relative_position_bias_table", key)]
    if shared in named.tensors and shared not in own and tables:
        tensor, source = named.tensors.pop(shared), named.source.pop(shared)
        for key in tables:
            named.tensors[key], named.source[key] = tensor.clone(), source


def _efficientnet(named: RenamedState, own: set[str]) -> None:
    """Rename EfficientNet-PyTorch's layers (github.com/lukemelas/EfficientNet-PyTorch), whose blocks have no stages."""
    found = {
        match[0]: (int(match[1]), int(match[2])) for key in own if (match := re.match(r"blocks\.(\d+)\.(\d+)", key))
    }
    blocks = sorted(found, key=found.__getitem__)
    if not blocks or "_conv_stem.weight" not in named.tensors:
        return
    for key in list(named.tensors):
        match = re.fullmatch(r"(?:_blocks\.(\d+)\.)?(\w+)\.(\w+)", key)
        if not match:
            continue
        number, layer, kind = match[1], match[2], match[3]
        if number is None and layer in _EFFICIENTNET:
            named.move(key, f"{_EFFICIENTNET[layer]}.{kind}")
        elif number is not None and int(number) < len(blocks) and layer in _EFFICIENTNET_BLOCK:
            new = _EFFICIENTNET_BLOCK[layer]
            if f"{blocks[int(number)]}.conv_pwl.weight" not in own:
                new = _WITHOUT_EXPANSION.get(new, new)
            named.move(key, f"{blocks[int(number)]}.{new}.{kind}")


def _timm_filter(model: nn.Module) -> Callable[..., Any] | None:
    """Return the filter in the module of the architecture or of one of the network's base classes, or None."""
    architecture = str(getattr(model, "pretrained_cfg", {}).get("architecture"))
    modules = [timm.models.model_entrypoint(architecture).__module__] if timm.is_model(architecture) else []
    modules += [cls.__module__ for cls in type(model).__mro__]
    for module in modules:
        for name in _FILTERS if module.startswith(("timm.", "usvit.")) else ():
            found: Callable[..., Any] | None = getattr(sys.modules[module], name, None)
            if found:
                return found
    return None
