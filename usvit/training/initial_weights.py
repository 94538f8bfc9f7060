"""Fine-tuned weights that stay near the initial ones: their average (WiSE-FT), and decay towards them (L2-SP)."""

import copy
from typing import Any

import torch
from torch import nn

from usvit.models import head_parts


def head_parameters(model: nn.Module) -> set[int]:
    """Return the ids of the parameters of the classifiers of a network, or of the networks in a module."""
    networks = (module for module in model.modules() if hasattr(module, "get_classifier"))
    return {id(value) for network in networks for part in head_parts(network) for value in part.parameters()}


def backbone_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters of a network, or of the network in a module, that are not its head's.

    What a task adds to the network (a decoder, an attention) has no initial weights either.
    """
    head = head_parameters(model)
    networks = (module for module in model.modules() if hasattr(module, "get_classifier"))
    own = {id(value) for network in networks for value in network.parameters()} - head
    return {name for name, value in model.named_parameters() if id(value) in own}


class AverageWithInitial:
    """A copy of a network with (1 - share) of its weights and share of the initial ones, and the trained head.

    Buffers are copied, so that running statistics must be recomputed for the averaged weights, or be fixed.

    Args:
        module: The network to train, with its initial weights, on the host.
        share: In (0, 1).

    Source: Wortsman et al. (2022), Robust fine-tuning of zero-shot models (WiSE-FT), equation 1. There, the head has
    initial weights, too (the text encoder's); a new head has none.
    """

    def __init__(self, module: nn.Module, share: float):
        self.module, self._share = copy.deepcopy(module), share
        names = backbone_parameters(module)
        self._initial = {name: value.detach().clone() for name, value in module.named_parameters() if name in names}

    @torch.no_grad()
    def refresh(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Compute the average from the trained network."""
        for average, (name, value) in zip(self.module.parameters(), module.named_parameters(), strict=True):
            first = self._initial.get(name)
            average.copy_(value if first is None else value.lerp(first.to(value.device), self._share))
        for old, buffer in zip(self.module.buffers(), module.buffers(), strict=True):
            old.copy_(buffer)


def decay_to_initial(model: nn.Module, optimizer: torch.optim.Optimizer, *, decoupled: bool) -> None:
    """Make the weight decay of an optimizer draw the backbone to its present weights instead of to zero (L2-SP).

    Decoupled decay, w - lr d w, gets lr d w_0 after each step; decay that is part of the gradient, g + d w, loses d w_0
    before it. The head, and what a task adds to the network, are still drawn to zero.

    Args:
        model: The network, or a module that holds it, with its initial weights.
        optimizer: Of ``model``, with a ``weight_decay`` in each group.
        decoupled: Whether the optimizer applies the decay to the weights (AdamW), not to the gradient (SGD, Adam).

    Source: Li, Grandvalet & Davoine (2018), Explicit Inductive Bias for Transfer Learning, equation 4 (L2-SP).
    """
    names = backbone_parameters(model)
    initial = {value: value.detach().clone() for name, value in model.named_parameters() if name in names}

    @torch.no_grad()
    def draw(stepped: torch.optim.Optimizer, *_: Any) -> None:
        for group in stepped.param_groups:
            for value in group["params"] if group["weight_decay"] else ():
                if value not in initial or value.grad is None:
                    continue
                if initial[value].device != value.device:
                    initial[value] = initial[value].to(value.device)
                if decoupled:
                    value.add_(initial[value], alpha=group["lr"] * group["weight_decay"])
                else:
                    value.grad.sub_(initial[value], alpha=group["weight_decay"])

    (optimizer.register_step_post_hook if decoupled else optimizer.register_step_pre_hook)(draw)
