"""Selection of the trained layers: the whole network, its head, or its head with one kind of layer.

Kinds of layers are recognised by their names and classes in timm's networks and ours:

- ``attn``: everything under ``attn`` (``self_attn``, ...): the projections of queries, keys and values, and all other
  parts inside an attention layer; and the head and the position embeddings. The normalisation before the layer,
  LayerScale after it, the class token and the patch embedding are frozen (Touvron et al. 2022, Three things, section 4:
  "the weights corresponding to the MHSA layer").
- ``ffn``: everything under ``mlp``; and the head and the position embeddings, as in the paper's comparison.
- ``norm``: every normalisation layer, including ResMLP's affine layers; and the head.
- ``head``: the classifiers, including the hidden layer of a hidden head.
- ``lora``: the adapters that ``usvit.models.lora.add_lora`` has put beside frozen matrices; and the head.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from usvit.config import Tune
from usvit.errors import UsvitError

_ATTENTION = re.compile(r"(self_)?attn(_in|_out|_pool|_downsample)?")
_NO_ATTENTION = re.compile(r"(mlp|norm|ls)\d?")
_MLP = re.compile(r"mlp(_channels|_in)?")
_POSITION = re.compile(r".*pos_embed.*|pos_(block|emb)|(patch|pixel)_pos|rel_pos.*|relative.*|attention_biases")
_NORM_CLASS = re.compile(r".*Norm.*|Affine")  # LayerNorm2d, BatchNormAct2d, RmsNorm, ...; ResMLP's Affine
_LORA = re.compile(r"lora_[ab]")
_WHAT = {"attn": "attention layers", "ffn": "MLPs", "norm": "normalisation layers", "lora": "adapters"}


@dataclass(frozen=True)
class TuneReport:
    """Result of ``set_trainable``."""

    tune: Tune
    trainable: int
    """Number of trained parameters."""
    total: int

    def __str__(self) -> str:
        part = f"{self.trainable / 1e6:.1f}" if self.trainable >= 1e5 else f"{self.trainable:,}"
        return f"tuning {self.tune}: {part} of {self.total / 1e6:.1f} M parameters"


def set_trainable(model: nn.Module, tune: Tune) -> TuneReport:
    """Freeze all parameters except those that ``tune`` selects.

    Parameters that the network itself keeps fixed (sine-cosine positions) stay fixed. Frozen parts must also be in
    evaluation mode while the others train; ``train_mode`` does this.

    Args:
        model: Network with timm's interface; changed in place.
        tune: Selection of the trained layers (see the module's docstring).

    Raises:
        UsvitError: If the network has no such layers; the message lists the selections that it supports.
    """
    if tune != "full":
        chosen = _chosen(model, tune)
        for name, parameter in model.named_parameters():
            parameter.requires_grad = parameter.requires_grad and name in chosen
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return TuneReport(tune, sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes))


def train_mode(model: nn.Module, *, fixed_statistics: bool = False) -> None:
    """Set training mode, and evaluation mode for every module whose parameters are all frozen.

    Frozen parts then have no dropout and no stochastic depth, and their running statistics do not change. A module
    without parameters has the mode of its parent: the stochastic depth of a block is active while any part of the block
    trains.

    Args:
        model: The network, or a module that holds it.
        fixed_statistics: Whether batch normalisation stays in evaluation mode, so that it uses and keeps its running
            statistics, while its scale and shift are trained.
    """
    model.train()
    _still(model)
    if fixed_statistics:
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.eval()


def head_parts(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return the classifiers (a distilled network has two), each with its hidden layer if it has one.

    Each maps its features to logits (B, K), or (B, K, 1, 1) if it is a convolution.
    """
    head = model.get_classifier()  # type: ignore[operator]
    parts = head if isinstance(head, tuple) else (head,)
    hidden = getattr(model, "hidden", None)
    return tuple(nn.Sequential(hidden, part) for part in parts) if isinstance(hidden, nn.Module) else parts


def head_names(model: nn.Module) -> set[str]:
    """Return the names of the classifiers' tensors in the state of a network, those of hidden layers included."""
    parts = {id(tensor) for part in head_parts(model) for tensor in (*part.parameters(), *part.buffers())}
    return {name for name, value in model.state_dict(keep_vars=True).items() if id(value) in parts}


def checkpoint_gradients(model: nn.Module) -> None:
    """Enable gradient checkpointing: activations are computed again in the backward pass instead of being stored.

    The result is the same bit for bit, batch normalisation included: its running statistics count the batch in the
    network's own forward pass alone, not when a block is computed again.

    Raises:
        UsvitError: If the network does not support it.
    """
    try:
        model.set_grad_checkpointing(True)  # type: ignore[operator]
    except (AttributeError, AssertionError) as error:  # timm raises AssertionError for networks without blocks
        raise UsvitError(
            f"This network ({type(model).__name__}) has no gradient checkpointing: set model.grad_checkpointing to "
            "false, and reduce train.micro_batch if memory is short."
        ) from error
    _count_batches_once(model)


def _count_batches_once(model: nn.Module) -> None:
    """Update the running statistics of batch normalisation only in the first forward pass, not in its recomputation."""
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not momenta:
        return

    def stand(network: nn.Module, still: bool) -> None:
        for module, momentum in momenta.items() if network.training else ():
            module.momentum = 0.0 if still else momentum

    def uncount(module: nn.Module, *_: object) -> None:
        if module.training and module.momentum == 0.0:
            module.num_batches_tracked -= 1  # type: ignore[assignment, operator]

    for module in momenta:
        module.register_forward_hook(uncount, always_call=True)  # also if PyTorch stops the recomputation early
    model.register_forward_pre_hook(lambda network, *_: stand(network, False))
    model.register_forward_hook(lambda network, *_: stand(network, True), always_call=True)


def _chosen(model: nn.Module, tune: Tune) -> set[str]:
    """Return the names of the parameters to train."""
    head = {id(parameter) for part in head_parts(model) for parameter in part.parameters()}
    named = dict(model.named_parameters())
    of_head = {name for name, parameter in named.items() if id(parameter) in head}
    if tune == "head":
        return of_head
    found = {kind: _of_kind(model, kind) - of_head for kind in _WHAT}
    if not found[tune]:
        able = ["full", "head", *(kind for kind, names in found.items() if names and kind != "lora")]
        raise UsvitError(
            f"This network ({type(model).__name__}) has no {_WHAT[tune]}, so model.tune={tune} would train nothing. "
            f"It supports model.tune={', '.join(able)}."
        )
    of_positions = {name for name in named if any(map(_POSITION.fullmatch, name.split(".")))}
    return of_head | found[tune] | (of_positions if tune in ("attn", "ffn") else set())


def _of_kind(model: nn.Module, kind: str) -> set[str]:
    if kind == "norm":
        return {
            f"{name}.{parameter}".removeprefix(".")
            for name, module in model.named_modules()
            if _NORM_CLASS.fullmatch(type(module).__name__)
            for parameter, _ in module.named_parameters(recurse=False)
        }
    if kind == "lora":
        return {name for name, _ in model.named_parameters() if any(map(_LORA.fullmatch, name.split(".")))}
    return {name for name, _ in model.named_parameters() if layer_of(name) == kind}


def layer_of(name: str) -> str | None:
    """Return the outermost kind of layer in a parameter's name, ``attn`` or ``ffn``; None if there is none."""
    for part, inner in pairwise(name.split(".")):
        if part == "attn_pool" and _NO_ATTENTION.fullmatch(inner):
            continue  # attention pooling is a whole block with its own MLP, normalisation and LayerScale
        if _ATTENTION.fullmatch(part):
            return "attn"
        if _MLP.fullmatch(part):
            return "ffn"
    return None


def _still(module: nn.Module) -> None:
    for child in module.children():
        trains = [parameter.requires_grad for parameter in child.parameters()]
        if trains and not any(trains):
            child.eval()
        else:
            _still(child)
