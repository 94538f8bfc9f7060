"""Evaluation during a training."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from usvit.training.distributed import World, full_state
from usvit.training.running_loss import diverged
from usvit.training.state import TrainState

if TYPE_CHECKING:
    from usvit.training.step_log import StepLog

Figures = dict[str, float | None]


class Evaluator:
    """Evaluates the weights that the training will keep, records the result and remembers the best weights.

    Args:
        module: the module whose weights are kept: the trained one, or its moving average.
        wrapped: ``module`` as Fabric wraps it.
        evaluate: called with ``wrapped`` in evaluation mode, in all processes; the main process's figures count.
        world: the processes of the training.
        monitor: the figure that decides which weights are the best.
        on_best: called after an evaluation that is the best so far, or None.
        log: the step log, or None.
    """

    def __init__(
        self,
        module: nn.Module,
        wrapped: Any,
        evaluate: Callable[[nn.Module], Figures],
        world: World,
        monitor: str,
        on_best: Callable[[], None] | None,
        log: "StepLog | None",
    ):
        self._module, self._wrapped, self._evaluate = module, wrapped, evaluate
        self._world, self._monitor, self._on_best, self._log = world, monitor, on_best, log

    def run(self, state: TrainState, row: Mapping[str, Any], speed: float, saved_step: int) -> None:
        """Evaluate after ``state.step`` steps, which adds a row to the history. Leaves evaluation mode on.

        Args:
            state: the state of the training.
            row: step, epoch and lr of the new row.
            speed: training images per second.
            saved_step: step of the last checkpoint, for an error message.

        Raises:
            Diverged: the validation loss is NaN or infinite.
        """
        world = self._world
        world.average_statistics(self._module)
        self._wrapped.eval()
        figures = world.broadcast(self._evaluate(self._wrapped))
        val_loss = figures["val_loss"]
        if val_loss is not None and not math.isfinite(val_loss):
            what = f"The validation loss became NaN or infinite after step {state.step}"
            raise diverged(what, row["lr"], saved_step, world)
        if self._log is not None:
            world.on_main(self._log.evaluated, state.step, figures)
        state.history.append(
            {**row, "train_loss": state.losses.epoch(), **figures, "images_per_second": round(speed, 2)}
        )
        if state.best.update(state.step, figures[self._monitor]):
            state.best_weights = {key: value.clone() for key, value in full_state(self._module).items()}
            if self._on_best is not None:
                self._on_best()
