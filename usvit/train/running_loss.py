"""The loss of a training as it goes on, and what happens when it is a number no more."""

from collections.abc import Mapping
from typing import Any

import torch

from usvit.config import OptimConfig
from usvit.errors import Diverged
from usvit.train.distributed import Team
from usvit.train.optim import learning_rate

_NEVER = 2**62
"""The step of the first loss that was not finite, where there was none."""


class RunningLoss:
    """Means of the loss, kept on the device: reading it every step would stall a GPU.

    Each process sums its own parts; what is told is the sum over all. All must ask together.
    """

    def __init__(self, team: Team):
        self._team, device = team, team.fabric.device
        zero, none = torch.zeros((), device=device), torch.full((), _NEVER, dtype=torch.int64, device=device)
        self._tensors = {"since_log": zero.clone(), "since_evaluation": zero, "first_bad": none}
        self._steps = {"since_log": 0, "since_evaluation": 0}

    def add(self, loss: torch.Tensor, step: int) -> None:
        bad = self._tensors["first_bad"]
        bad.copy_(torch.where((bad == _NEVER) & ~loss.isfinite(), step, bad))
        for span in self._steps:
            self._tensors[span] += loss
            self._steps[span] += 1

    def check(self, optim: OptimConfig, steps: int, good: int) -> None:
        """Raise if a loss was not finite."""
        bad = -int(self._team.max(-self._tensors["first_bad"]).item())
        if bad != _NEVER:
            what = f"The training loss is no finite number at step {bad + 1}"
            raise diverged(what, learning_rate(optim, bad, steps), good, self._team)

    def logged(self) -> float:
        """Mean since the last row of the log."""
        return self._mean("since_log")

    def epoch(self) -> float:
        """Mean since the last evaluation."""
        return self._mean("since_evaluation")

    def state(self) -> dict[str, Any]:
        sums = {key: self._tensors[key] for key in self._steps}
        return {
            "tensors": {key: self._team.sum(value).cpu() for key, value in sums.items()},
            "steps": dict(self._steps),
        }

    def load(self, state: dict[str, Any]) -> None:
        for key in self._steps:
            if self._team.first:
                self._tensors[key].copy_(state["tensors"][key])
        self._steps = dict(state["steps"])

    def _mean(self, span: str) -> float:
        mean = self._team.sum(self._tensors[span]).item() / max(1, self._steps[span])
        self._tensors[span].zero_()
        self._steps[span] = 0
        return mean


def check_weights(state: Mapping[str, torch.Tensor], step: int, lr: float, good: int) -> None:
    """Refuse to keep weights that are no numbers: a gradient can overflow after a loss that did not.

    Raises:
        Diverged: one is not finite.
    """
    bad = next((key for key, value in state.items() if value.is_floating_point() and not value.isfinite().all()), None)
    if bad is not None:
        raise diverged(f"The weights are no finite numbers after step {step} ({bad})", lr, good)


def diverged(what: str, lr: float, good: int, team: Team | None = None) -> Diverged:
    """What to raise; where all processes of a ``team`` raise it, the first one says it."""
    return Diverged(
        f"{what} (learning rate {lr:.3g}): training has diverged; {last_good(good)}. "
        "Lower optim.lr, set optim.clip_norm=1, or use --precision fp32."
        if team is None or team.first
        else ""
    )


def last_good(good: int) -> str:
    return f"the last good checkpoint is of step {good}" if good else "there was no checkpoint yet"
