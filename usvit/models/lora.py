"""Low-rank adapters (LoRA): small trained matrices beside the frozen matrices of attention layers and MLPs.

An adapted layer computes W x + b + (alpha / rank) B A dropout(x). W (out, in) and b stay as the base has them, and only
A (rank, in) and B (out, rank) are trained. B starts at zero, so that training begins with the outputs of the base. A
matrix that holds several, such as the queries, keys and values of timm's ``qkv``, has a pair (A, B) for each of them.

Source: Hu et al. 2022, LoRA: Low-Rank Adaptation of Large Language Models (section 4.1; queries and values: 7.1).
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from usvit.config import LoraConfig, LoraTarget
from usvit.errors import UsvitError
from usvit.models.trainable import head_names, head_parts, layer_of
from usvit.records import AdapterRecord

_FUSED: dict[str, tuple[LoraTarget, ...]] = {"qkv": ("q", "k", "v"), "kv": ("k", "v")}
"""Layers that hold several matrices of equal height, one above the other."""
_SINGLE: dict[str, dict[str, LoraTarget]] = {
    "attn": {"q": "q", "k": "k", "v": "v", "q_proj": "q", "k_proj": "k", "v_proj": "v", "proj": "proj"},
    "ffn": {"fc1": "fc1", "fc2": "fc2"},
}
"""Kind of layer (``layer_of``) -> name of a layer in it -> its matrix."""


class LoraLinear(nn.Linear):
    """Linear layer with low-rank adapters; ``weight`` and ``bias`` are those of the layer that it replaces.

    Args:
        layer: The layer to adapt.
        parts: The matrices that its weight holds, one above the other, all of the same height.
        adapted: Those that get an adapter.
        config: Rank, alpha and dropout.
    """

    def __init__(self, layer: nn.Linear, parts: Sequence[str], adapted: Sequence[str], config: LoraConfig):
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.parts, self.scale = tuple(parts), config.alpha / config.rank
        self.height = layer.out_features // len(parts)
        self.dropout = nn.Dropout(config.dropout)
        like = layer.weight
        self.lora_a = nn.ParameterDict({part: like.new_empty(config.rank, layer.in_features) for part in adapted})
        self.lora_b = nn.ParameterDict({part: like.new_zeros(self.height, config.rank) for part in adapted})
        for matrix in self.lora_a.values():
            nn.init.kaiming_uniform_(matrix, a=math.sqrt(5))  # as in the paper's code, which follows nn.Linear

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        low = linear(self.dropout(input), torch.cat(list(self.lora_a.values())))
        return super().forward(input) + self.scale * linear(low, self._whole_b())

    def merged(self) -> nn.Linear:
        """Return a plain layer that computes the same: its weight is W + (alpha / rank) B A."""
        layer = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        with torch.no_grad():
            change = self.scale * (self._whole_b().double() @ torch.cat(list(self.lora_a.values())).double())
            layer.weight = nn.Parameter((self.weight.double() + change).to(self.weight.dtype))
        layer.bias = self.bias
        return layer

    def _whole_b(self) -> Tensor:
        """Return B of all parts, (out, rank * number of adapters); rows of parts without an adapter are zero."""
        none = self.weight.new_zeros(self.height, 0)
        return torch.block_diag(*(self.lora_b.get(part, none) for part in self.parts))


def add_lora(model: nn.Module, config: LoraConfig, image_size: int) -> None:
    """Put adapters beside the matrices that ``config.targets`` names; changes the network in place.

    A is drawn from torch's global generator.

    Args:
        model: Network with timm's interface.
        config: Rank, alpha, dropout and targets.
        image_size: Side of the square input in pixels, for a trial with one blank image.

    Raises:
        UsvitError: The network has no such matrices, or uses one of them without calling its layer, so that an adapter
            would have no effect.
    """
    heads = {id(module) for part in head_parts(model) for module in part.modules()}
    linears = [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and id(layer) not in heads
    ]
    added: dict[str, LoraLinear] = {}
    possible: set[str] = set()
    for name, layer in linears:
        parts = _parts_of(name, layer)
        adapted = [part for part in parts if part in config.targets]
        possible |= set(parts)
        if adapted:
            added[name] = LoraLinear(layer, parts, adapted, config)
            model.set_submodule(name, added[name])
    held = {part for layer in added.values() for part in layer.lora_a}
    if missing := [target for target in config.targets if target not in held]:
        able = f"It supports {', '.join(sorted(possible))}." if possible else "Choose another model.tune."
        raise UsvitError(
            f"This network ({type(model).__name__}) has no matrix {' and no '.join(missing)} for an adapter, which "
            f"model.lora.targets names. {able}"
        )
    _refuse_unused(model, added, image_size)


def merge_lora(model: nn.Module) -> None:
    """Replace every adapted layer by a plain one that computes the same up to rounding."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, LoraLinear):
            model.set_submodule(name, layer.merged())


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the trained tensors of a network with adapters: A and B of each adapter, and the head."""
    names = head_names(model) | {key for key in model.state_dict() if _is_adapter(key)}
    return {key: value.detach() for key, value in model.state_dict().items() if key in names}


def load_lora(model: nn.Module, tensors: Mapping[str, Tensor], config: LoraConfig, image_size: int, what: str) -> None:
    """Merge saved adapters into a network that has the weights of their base; the head is not changed.

    Args:
        model: The network, changed in place.
        tensors: What ``lora_state`` returned.
        config: The settings of the adapters.
        image_size: As for ``add_lora``.
        what: Name of the file, for error messages.

    Raises:
        UsvitError: The adapters do not fit the network.
    """
    with torch.random.fork_rng(devices=[]):
        add_lora(model, config.model_copy(update={"dropout": 0.0}), image_size)
    own = {key: value for key, value in lora_state(model).items() if _is_adapter(key)}
    there = {key: value for key, value in tensors.items() if _is_adapter(key)}
    wrong = [key for key in own if key not in there or own[key].shape != there[key].shape]
    if wrong or len(there) != len(own):
        first = next(iter([*wrong, *sorted(set(there) - set(own))]))
        raise UsvitError(
            f"The adapters {what} do not fit this network ({type(model).__name__}): {first[:100]} is missing, unknown "
            "or has another shape. Copy the fold's own files again."
        )
    model.load_state_dict(there, strict=False)
    merge_lora(model)


def lora_config(record: AdapterRecord) -> LoraConfig:
    """Return the settings of saved adapters."""
    return LoraConfig(rank=record.rank, alpha=record.alpha, targets=tuple(record.targets))


def _is_adapter(key: str) -> bool:
    return ".lora_a." in key or ".lora_b." in key


def _parts_of(name: str, layer: nn.Linear) -> tuple[LoraTarget, ...]:
    """Return the matrices that a layer of a network holds; none if it is no layer of attention or of an MLP."""
    kind, own = layer_of(f"{name}.weight"), name.rpartition(".")[2]
    if kind == "attn" and own in _FUSED:
        parts = _FUSED[own]
        return parts if layer.out_features % len(parts) == 0 else ()
    single = _SINGLE.get(kind or "", {}).get(own)
    return () if single is None else (single,)


def _refuse_unused(model: nn.Module, added: Mapping[str, LoraLinear], image_size: int) -> None:
    """Refuse a network that reads the weight of an adapted layer instead of calling the layer (timm's BEiT)."""
    called: set[str] = set()
    hooks = [layer.register_forward_hook(lambda *_, name=name: called.add(name)) for name, layer in added.items()]
    training = model.training
    model.eval()
    with torch.no_grad():
        model(next(model.parameters()).new_zeros(1, 3, image_size, image_size))
    model.train(training)
    for hook in hooks:
        hook.remove()
    if unused := [name for name in added if name not in called]:
        raise UsvitError(
            f"This network ({type(model).__name__}) does not call its layer {unused[0]}, so an adapter there would "
            "have no effect. Leave its matrix out of model.lora.targets, or choose another model.tune."
        )
