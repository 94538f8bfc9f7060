"""Schedule-free AdamW: an average of the iterates replaces the decay of the learning rate.

Three sequences of weights: z takes the steps, x is the average of z and is what the training returns, and gradients are
computed at y = (1 - beta_1) z + beta_1 x, which is what the parameters of the network hold. x need not be stored, since
y and z determine it.

Source: Defazio et al. 2024, The Road Less Scheduled (Algorithm 1), with the weights of the average in proportion to the
squared learning rate, as in the authors' code (github.com/facebookresearch/schedule_free).
"""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """Schedule-free AdamW.

    Args:
        params: Parameters or groups of parameters.
        lr: Learning rate; only a warm-up should change it.
        betas: beta_1, which mixes x and z, and beta_2 of the second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled weight decay, applied at y.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "steps": 0, "largest_lr": 0.0, "weight_sum": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step with the gradients at y."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["steps"] += 1
            group["largest_lr"] = max(group["largest_lr"], group["lr"])
            weight = group["largest_lr"] ** 2
            group["weight_sum"] += weight
            share = weight / group["weight_sum"] if weight > 0 else 1.0
            for y in group["params"]:
                if y.grad is not None:
                    self._update(y, group, share)
        return loss

    def _update(self, y: torch.Tensor, group: dict[str, Any], share: float) -> None:
        """Update one parameter; ``share`` is the weight of the new z in the average x."""
        state, (beta_1, beta_2), lr = self.state[y], group["betas"], group["lr"]
        if not state:
            state["z"] = y.detach().clone()
            state["exp_avg_sq"] = torch.zeros_like(y)
        z, second = state["z"], state["exp_avg_sq"]
        assert y.grad is not None
        second.mul_(beta_2).addcmul_(y.grad, y.grad, value=1 - beta_2)
        scale = second.sqrt().div_(math.sqrt(1 - beta_2 ** group["steps"])).add_(group["eps"])
        change = y.grad / scale
        if group["weight_decay"]:
            change.add_(y, alpha=group["weight_decay"])
        # x' = (1 - share) x + share z', with z' = z - lr change, and y' = (1 - beta_1) z' + beta_1 x'.
        y.lerp_(z, share)
        y.add_(change, alpha=lr * (beta_1 * (1 - share) - 1))
        z.sub_(change, alpha=lr)


class AveragedWeights:
    """A copy of a network with the averaged weights x, which are evaluated and kept.

    The trained network always holds y, so that an evaluation changes nothing, not even by rounding.

    Args:
        module: The network to train, on the host.
    """

    def __init__(self, module: nn.Module):
        self.module = copy.deepcopy(module)

    @torch.no_grad()
    def refresh(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Compute x from the trained network and its optimizer; buffers are copied.

        A parameter that is not trained, or has not been yet, is copied.
        """
        beta_1 = {parameter: group["betas"][0] for group in optimizer.param_groups for parameter in group["params"]}
        for x, y in zip(self.module.parameters(), module.parameters(), strict=True):
            x.copy_(y.lerp(optimizer.state[y]["z"], 1 - 1 / beta_1[y]) if y in optimizer.state else y)
        for old, buffer in zip(self.module.buffers(), module.buffers(), strict=True):
            old.copy_(buffer)
