"""A network's own description of an image: what it hands to its classifier."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from usvit.models.tune import head_parts


@contextmanager
def caught_inputs(parts: Sequence[nn.Module]) -> Iterator[dict[int, torch.Tensor]]:
    """While the block runs, the input of each classifier of a network is kept under its index.

    Args:
        parts: as ``tune.head_parts`` gives them.
    """
    caught: dict[int, torch.Tensor] = {}

    def catch(index: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda _, inputs: caught.__setitem__(index, inputs[0])

    # A hidden head is a Sequential of the network's parts, which the network itself does not call.
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
    """One forward pass, and what the classifier was given in it.

    Args:
        model: a network of the zoo, or any of timm's, on the device of ``inputs``.
        inputs: (B, 3, S, S) float.
        through: what is called in place of the model: a wrapper of it that sets the precision.

    Returns:
        (B, K) float32 logits, and (B, D) float32 features (``vectors``); None where the network has no classifier
        that it calls as a module.
    """
    try:
        parts = head_parts(model)
    except (AttributeError, TypeError):  # no network with timm's interface
        parts = ()
    with caught_inputs(parts) as caught:
        logits = (through or model)(inputs).float()
    if not parts or len(caught) < len(parts):
        return logits, None
    return logits, vectors(torch.stack([caught[index] for index in range(len(parts))], dim=1))


def vectors(heads: torch.Tensor) -> torch.Tensor:
    """(B, P, ...) inputs of P classifiers -> (B, D) float32: their mean, and that over places in a picture."""
    features = heads.float().mean(dim=1)
    return features.mean(dim=(2, 3)) if features.ndim == 4 else features.flatten(1)
