"""Capture of the attention weights of a network while it runs.

Calls of PyTorch's ``scaled_dot_product_attention`` are intercepted. All attention layers use it: timm's ``Attention``
and its variants, class attention, attention pooling, and usvit's attention with relative positions or along an axis.
The weights are therefore computed from the actual queries, keys and scale. Talking heads (CaiT) do not call it; their
softmax is captured before the second mixing of heads, after which rows do not sum to one.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from timm.layers import AttentionPoolLatent
from timm.models.cait import ClassAttn, TalkingHeadAttn
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from usvit.models import AxialAttention, ParallelBlock

Kind = Literal["self", "class", "pool"]
Reduce = Callable[["Kind", Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """One attention layer. The branches of a parallel layer are one layer with all their heads."""

    name: str
    """Name of the layer, such as ``blocks.3``."""
    kind: Kind
    """``self``: tokens to tokens. ``class``: the class (and distillation) token to all, or to the patches (CaiT).
    ``pool``: a query to all, at the end."""
    weights: Tensor
    """(B, heads, queries, keys), rows sum to 1; or the result of ``reduce``."""
    n_keys: int
    """Number of tokens that are attended to."""


def attention_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return name and module of each attention layer, in the order in which they were created."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if hasattr(module, "fused_attn") or isinstance(module, TalkingHeadAttn)
    ]


def capture(model: nn.Module, images: Tensor, reduce: Reduce | None = None) -> list[Layer]:
    """Run a network in evaluation mode and return the weights of every attention layer.

    Args:
        model: the network; its state is restored.
        images: (B, 3, S, S), normalised.
        reduce: reduces the (B, heads, queries, keys) weights to (B, heads or 1, ...) as soon as they are computed, so
            that the weights of a deep network are not all kept in memory.

    Returns:
        The layers in the order in which they ran; empty for a network without attention.
    """
    recorder = _Recorder(reduce)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_unfused(model))
        for name, module in attention_modules(model):
            for handle in recorder.watch(_layer_name(model, name), module):
                stack.callback(handle.remove)
        stack.enter_context(recorder)
        model(images)
    layers: dict[str, Layer] = {}
    for layer in recorder.heard:
        before = layers.get(layer.name)
        if before is not None:
            layer = replace(layer, weights=torch.cat([before.weights, layer.weights], dim=1))
        layers[layer.name] = layer
    return list(layers.values())


class _Recorder(TorchFunctionMode):
    """Records each call of attention inside the watched layers."""

    def __init__(self, reduce: Reduce | None):
        super().__init__()
        self.heard: list[Layer] = []
        self._reduce = reduce
        self._inside: list[tuple[str, nn.Module]] = []

    def watch(self, name: str, module: nn.Module) -> list[Any]:
        handles = [
            module.register_forward_pre_hook(lambda *_: self._inside.append((name, module))),
            module.register_forward_hook(lambda *_: self._inside.pop() and None, always_call=True),
        ]
        if isinstance(module, TalkingHeadAttn):
            handles.append(
                module.proj_w.register_forward_pre_hook(
                    lambda _, inputs: self._hear(name, "self", inputs[0].permute(0, 3, 1, 2))
                )
            )
        return handles

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and self._inside:
            name, module = self._inside[-1]
            weights = _weights(*args, **kwargs)
            if isinstance(module, AxialAttention):
                weights = _spread(weights, module)
            self._hear(name, _kind(module), weights)
        return func(*args, **kwargs)

    def _hear(self, name: str, kind: Kind, weights: Tensor) -> None:
        kept = weights if self._reduce is None else self._reduce(kind, weights)
        self.heard.append(Layer(name, kind, kept, weights.shape[-1]))


def _weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute softmax(Q K^T scale + mask), as defined in PyTorch's documentation."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.float().softmax(dim=-1)


def _kind(module: nn.Module) -> Kind:
    if isinstance(module, ClassAttn):
        return "class"
    return "pool" if isinstance(module, AttentionPoolLatent) else "self"


def _spread(weights: Tensor, module: AxialAttention) -> Tensor:
    """Expand weights within rows or columns (B * lines, heads, n, n) to all patches (B, heads, N, N)."""
    height, width = module.grid
    lines = height if module.axis == "row" else width
    by_line = weights.unflatten(0, (-1, lines))  # (B, lines, heads, n, n)
    same = torch.eye(lines, dtype=weights.dtype, device=weights.device)
    pattern = "brhcd,rs->bhrcsd" if module.axis == "row" else "bchrs,cd->bhrcsd"
    return torch.einsum(pattern, by_line, same).flatten(2, 3).flatten(3, 4)


def _layer_name(model: nn.Module, name: str) -> str:
    """Return the name of the block of an attention module; for parallel branches, that of their layer."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        if hasattr(model.get_submodule(".".join(parts[:end])), "attns"):
            return ".".join(parts[:end])
    return ".".join(parts[:-1]) or name


@contextmanager
def _unfused(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode and to PyTorch's attention without fused branches, and restore the state afterwards."""
    was_training = model.training
    changed: list[tuple[nn.Module, str, bool]] = []
    for module in model.modules():
        # timm does not call PyTorch's function if fused_attn is False; fused branches bypass their attention layers.
        for key, wanted, there in (
            ("fused_attn", True, hasattr(module, "fused_attn")),
            ("fused", False, isinstance(module, ParallelBlock)),
        ):
            if there and getattr(module, key) is not wanted:
                changed.append((module, key, getattr(module, key)))
                setattr(module, key, wanted)
    model.eval()
    try:
        yield
    finally:
        for module, key, value in changed:
            setattr(module, key, value)
        model.train(was_training)
