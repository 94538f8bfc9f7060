"""Features of an image: the input of the network's classifier."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from usvit.models.trainable import head_parts


@contextmanager
def caught_inputs(parts: Sequence[nn.Module]) -> Iterator[dict[int, torch.Tensor]]:
    """Record the input of each classifier while the block runs.

    Args:
        parts: Classifiers, as returned by ``usvit.models.trainable.head_parts``.

    Yields:
        Index of the classifier -> its input; empty until the network is called.
    """
    caught: dict[int, torch.Tensor] = {}

    def catch(index: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda _, inputs: caught.__setitem__(index, inputs[0])

    # A hidden head is a Sequential that the network does not call itself, so its first layer is hooked.
    firsts = [part[0] if isinstance(part, nn.Sequential) else part for part in parts]
    hooks = [first.register_forward_pre_hook(catch(index)) for index, first in enumerate(firsts)]
    try:
        yield caught
    finally:
        for hook in hooks:
            hook.remove()


def logits_and_features(
    model: nn.Module, inputs: torch.Tensor, *, through: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute logits and features in one forward pass.

    Args:
        model: Network of the zoo or of timm, on the device of ``inputs``.
        inputs: (B, 3, S, S) float.
        through: Wrapper of the model that is called instead of it, for example to set the precision.

    Returns:
        (B, K) float32 logits, and (B, D) float32 features (``vectors``). The features are None if the network calls
        no classifier as a module.
    """
    try:
        parts = head_parts(model)
    except (AttributeError, TypeError):  # the network does not have timm's interface
        parts = ()
    with caught_inputs(parts) as caught:
        logits = (through or model)(inputs).float()
    if not parts or len(caught) < len(parts):
        return logits, None
    return logits, vectors(torch.stack([caught[index] for index in range(len(parts))], dim=1))


def vectors(heads: torch.Tensor) -> torch.Tensor:
    """Average the inputs (B, P, ...) of P classifiers, and feature maps over their positions, to (B, D) float32."""
    features = heads.float().mean(dim=1)
    return features.mean(dim=(2, 3)) if features.ndim == 4 else features.flatten(1)
