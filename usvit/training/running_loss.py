"""Running means of the training loss, and the errors for a loss or weights that became NaN or infinite."""

from collections.abc import Mapping
from typing import Any

import torch

from usvit.config import OptimConfig
from usvit.errors import Diverged
from usvit.training.distributed import World
from usvit.training.optimizers import learning_rate

_NEVER = 2**62
"""Stored as the step of the first NaN or infinite loss while there is none."""


class RunningLoss:
    """Means of the loss since the last log row and the last evaluation.

    The sums stay on the device, because reading them every step would stall a GPU. Each process adds its own share;
    the means are over all processes, which must call the methods together.
    """

    def __init__(self, world: World):
        self._world, device = world, world.fabric.device
        zero, none = torch.zeros((), device=device), torch.full((), _NEVER, dtype=torch.int64, device=device)
        self._tensors = {"since_log": zero.clone(), "since_evaluation": zero, "first_bad": none}
        self._steps = {"since_log": 0, "since_evaluation": 0}

    def add(self, loss: torch.Tensor, step: int) -> None:
        """Add a step's loss, () on the device."""
        bad = self._tensors["first_bad"]
        bad.copy_(torch.where((bad == _NEVER) & ~loss.isfinite(), step, bad))
        for span in self._steps:
            self._tensors[span] += loss
            self._steps[span] += 1

    def check(self, optim: OptimConfig, steps: int, good: int) -> None:
        """Raise Diverged if a loss was NaN or infinite. Waits for the device."""
        bad = -int(self._world.max(-self._tensors["first_bad"]).item())
        if bad != _NEVER:
            what = f"The training loss became NaN or infinite at step {bad + 1}"
            raise diverged(what, learning_rate(optim, bad, steps), good, self._world)

    def logged(self) -> float:
        """Return the mean since the last row of the log, and reset it."""
        return self._mean("since_log")

    def epoch(self) -> float:
        """Return the mean since the last evaluation, and reset it."""
        return self._mean("since_evaluation")

    def state(self) -> dict[str, Any]:
        sums = {key: self._tensors[key] for key in self._steps}
        return {
            "tensors": {key: self._world.sum(value).cpu() for key, value in sums.items()},
            "steps": dict(self._steps),
        }

    def load(self, state: dict[str, Any]) -> None:
        for key in self._steps:
            if self._world.is_main:
                self._tensors[key].copy_(state["tensors"][key])
        self._steps = dict(state["steps"])

    def _mean(self, span: str) -> float:
        mean = self._world.sum(self._tensors[span]).item() / max(1, self._steps[span])
        self._tensors[span].zero_()
        self._steps[span] = 0
        return mean


def check_weights(state: Mapping[str, torch.Tensor], step: int, lr: float, good: int) -> None:
    """Raise unless all weights are finite: a gradient can overflow after a finite loss.

    Raises:
        Diverged: a weight is NaN or infinite.
    """
    bad = next((key for key, value in state.items() if value.is_floating_point() and not value.isfinite().all()), None)
    if bad is not None:
        raise diverged(f"The weights became NaN or infinite after step {step} ({bad})", lr, good)


def diverged(what: str, lr: float, good: int, world: World | None = None) -> Diverged:
    """Make the exception to raise; if all processes of a ``world`` raise it, only the main one has a message."""
    return Diverged(
        f"{what} (learning rate {lr:.3g}): training has diverged; {_last_good(good)}. "
        "Lower optim.lr, set optim.clip_norm=1, or use --precision fp32."
        if world is None or world.is_main
        else ""
    )


def _last_good(good: int) -> str:
    """Describe the last checkpoint for an error message."""
    return f"the last good checkpoint is of step {good}" if good else "there was no checkpoint yet"
