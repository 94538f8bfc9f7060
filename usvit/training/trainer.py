"""The training loop. Fine-tuning and pre-training run the same ``Trainer`` with different tasks."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning_fabric
import pandas as pd
import torch
from torch import nn

from usvit.config import OptimConfig, TrainConfig
from usvit.data.loading import Batch, InfiniteLoader, copied_ahead
from usvit.models import train_mode
from usvit.progress import Progress
from usvit.records.run import FoldResultRecord
from usvit.training.checkpoint import CheckpointManager
from usvit.training.device import check_compiler
from usvit.training.distributed import PATIENCE, World, full_state, load_full_state
from usvit.training.early_stopping import EarlyStopping
from usvit.training.ema import Ema
from usvit.training.evaluation import Evaluator, Figures
from usvit.training.initial_weights import AverageWithInitial
from usvit.training.optimizers import learning_rate, make_optimizer, resolve, weight_decay
from usvit.training.phases import PhaseTimes
from usvit.training.running_loss import RunningLoss, check_weights
from usvit.training.schedule_free import AveragedWeights
from usvit.training.signals import StopRequest, stop_requests, stopped
from usvit.training.state import HistoryRow, TrainState
from usvit.training.task import ON_HOST, TrainingTask
from usvit.training.trackers import TRACKERS, Tracker
from usvit.training.worker_failures import lost_processes

if TYPE_CHECKING:
    from usvit.training.step_log import StepLog

__all__ = ["Figures", "FitResult", "Trainer", "training_step"]

_HISTORY_COLUMNS = ["step", "epoch", "lr", "train_loss", "val_loss", "val_accuracy", "val_auc", "images_per_second"]


@dataclass(frozen=True)
class FitResult:
    """A finished training. The task's module holds the kept weights."""

    steps: int
    best_step: int
    history: pd.DataFrame
    """One row per evaluation: ``_HISTORY_COLUMNS``, and the other figures that ``evaluate`` returns."""
    seconds: float
    """Wall time of the loop with its evaluations, including the processes before a resumption."""
    images_per_second: float
    """Training images over the seconds spent on training steps."""
    phases: PhaseTimes = field(default_factory=PhaseTimes)
    """Wall time of training steps and of evaluations, to which a caller adds what follows."""

    def record(self, fold: int, phases: dict[str, float] | None = None) -> FoldResultRecord:
        """Return the entry of ``run.json``; times and rates are rounded to a tenth."""
        return FoldResultRecord(
            fold=fold,
            steps=self.steps,
            best_step=self.best_step,
            seconds=round(self.seconds, 1),
            images_per_second=round(self.images_per_second, 1),
            phases=phases,
        )


class Trainer:
    """Trains the module of a task, keeps the best weights, and can be killed and resumed at any moment.

    Args:
        task: the loss. Its module is trained in place. Parameters that need no gradient are left out of the optimizer,
            and submodules that hold no others stay in evaluation mode.
        fabric: device, precision and processes (``usvit.training.distributed.launch``).
        stream: the endless stream of training batches. With several processes, each has its share.
        evaluate: called in all processes with the module, or with its moving average if ``train.ema`` is set, in
            evaluation mode. Returns val_loss, val_accuracy, val_auc (None if undefined) and further figures; those of
            the main process count.
        train: batch size, length, evaluation and checkpoints.
        optim: optimizer and learning rate.
        checkpoint: file of the unfinished state. It is read if it exists and is left there at the end; the caller
            deletes it after writing the results.
        name: shown with the progress.
        progress: shows the progress.
        on_best: called after an evaluation that is the best so far, such as to keep what ``evaluate`` computed.
        statistics: called with the module that ``evaluate`` gets, before it and before the weights are kept, to compute
            running statistics that belong to these weights; None to leave them.
        log: gets a row every ``train.log_every`` steps; the main process alone writes it.
        identity: identifies the training; a checkpoint with another identity is refused. If empty, only a checkpoint
            that does not fit is refused.
    """

    def __init__(
        self,
        task: TrainingTask,
        fabric: lightning_fabric.Fabric,
        stream: InfiniteLoader,
        evaluate: Callable[[nn.Module], Figures],
        *,
        train: TrainConfig,
        optim: OptimConfig,
        checkpoint: Path,
        name: str,
        progress: Progress,
        on_best: Callable[[], None] | None = None,
        statistics: Callable[[nn.Module], None] | None = None,
        log: "StepLog | None" = None,
        identity: str = "",
    ):
        self.task, self.fabric, self.stream, self.train, self.log = task, fabric, stream, train, log
        self.optim = resolve(optim, train.batch_size, stream.steps_per_epoch)
        self.steps = train.steps or math.ceil((train.epochs or 0) * stream.steps_per_epoch)
        self.eval_every = min(train.eval_every or math.ceil(stream.steps_per_epoch), self.steps)
        self._evaluate_module, self._on_best, self._statistics = evaluate, on_best, statistics
        self._checkpoint, self._identity = checkpoint, identity
        self._trackers: list[Tracker] = []
        self._name, self._progress = name, progress

    def fit(self) -> FitResult:
        """Train to the end, or from the checkpoint to the end.

        Raises:
            UsvitError: the loss or a weight became NaN or infinite, the disk is full, the checkpoint belongs to
                another training, another process of the training is gone, or no compiler was found.
            Stopped: a signal requested it. The state is saved.
        """
        self._set_up()
        self._resume()
        batches = self.stream.iterate(self.state.step, self.steps)
        if self.stream.device is None:
            batches = copied_ahead(batches, self.fabric.device)
        self._progress.start(self._name, self.steps, "steps", done=self.state.step)
        try:
            with stop_requests() as stop, lost_processes(lambda: self.checkpoints.saved_step, batches):
                if self.state.step < self.steps and not self.state.best.should_stop:
                    self._train_mode()
                    self._tick = time.monotonic()
                    for batch in batches:
                        self._save_or_stop(stop)
                        lr = self._train_step(batch)
                        self._log_and_evaluate(lr)
                        if self.state.best.should_stop:
                            break
                    self._stop_if_requested(stop)
        finally:
            self._progress.finish()
            for one in (self.log, *self._trackers):
                if one is not None:
                    one.close()
        return self._finish()

    def _set_up(self) -> None:
        """Wrap the module for device, precision and processes, and make everything that the loop uses."""
        module, train = self.task.module, self.train
        self.world = World(self.fabric, PATIENCE)
        if train.channels_last:
            module.to(memory_format=torch.channels_last)
        if train.compile:
            check_compiler(self.fabric.device.type, "train.compile", "set train.compile to false")
            module.compile()
        self.ema = None if train.ema is None else Ema(module, train.ema)  # before parameters are sharded
        self.averaged: AveragedWeights | AverageWithInitial | None = None
        if self.optim.name == "schedule_free_adamw":
            self.averaged = AveragedWeights(module)
        elif train.initial_share > 0:
            self.averaged = AverageWithInitial(module, train.initial_share)
        self.wrapped, self.optimizer = self.world.setup(module, lambda: self._optimizer(module))
        average = self.ema or self.averaged
        self.kept = module if average is None else average.module
        self.evaluated = self.wrapped if average is None else self.world.setup_ema(average.module)
        self._refreshed = -1
        self.state = TrainState(EarlyStopping(train.early_stopping), RunningLoss(self.world))
        self.checkpoints = CheckpointManager(
            self._checkpoint, self._identity, self.world, module, self.optimizer, self.ema
        )
        self.evaluator = Evaluator(
            self.kept,
            self.evaluated,
            self._evaluate_module,
            self.world,
            train.early_stopping.monitor,
            self._on_best,
            self.log,
        )

    def _optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        return make_optimizer(module, self.optim)

    def _train_mode(self) -> None:
        train_mode(self.wrapped, fixed_statistics=self.train.batch_norm == "frozen")

    def _resume(self) -> None:
        self.checkpoints.restore(self.state)
        if self.log is not None:
            self.world.on_main(self.log.resume, self.state.step)
        self.world.on_main(self._open_trackers)
        self.state.started = time.monotonic()

    def _open_trackers(self) -> None:
        self._trackers = [
            TRACKERS[name](self._checkpoint.parent, resumed=self.state.step > 0) for name in self.train.loggers
        ]

    def _track(self, step: int, figures: Mapping[str, Any]) -> None:
        """Hand the numbers of a row, by the names of the step log, to the trackers."""
        for tracker in self._trackers:
            tracker.log(
                step,
                {
                    key if key.startswith("val_") else f"train/{key}": value
                    for key, value in figures.items()
                    if key not in ("step", "epoch", "train_loss")
                },
            )

    def _save_or_stop(self, stop: StopRequest) -> None:
        """Between two steps, save a checkpoint that is due, and stop after a signal to any of the processes."""
        is_due = self.checkpoints.is_due(self.state.step, self.train.checkpoint_seconds)
        asked, at_save = self.world.any(stop.name is not None, is_due)
        if asked or at_save:
            self._check_losses()
            if self.state.step > self.checkpoints.saved_step:
                self.checkpoints.save(self.state, self._last_lr())
            self._tick = time.monotonic()
        if asked:
            self._stop(stop)

    def _stop_if_requested(self, stop: StopRequest) -> None:
        """Stop after a signal that came during the last step."""
        if self.world.any(stop.name is not None)[0]:
            self.checkpoints.save(self.state, self._last_lr())
            self._stop(stop)

    def _stop(self, stop: StopRequest) -> None:
        self.world.barrier()  # a process that left earlier would end the main process, which still writes
        raise stopped(stop.name or "a signal to another process", self.state.step, self.world.is_main)

    def _train_step(self, batch: Batch) -> float:
        """Train on one batch; return its learning rate."""
        step, world = self.state.step, self.world
        lr = learning_rate(self.optim, step, self.steps)
        world.reseed(self.stream.seed, step)
        loss = training_step(
            self.wrapped,
            self.fabric,
            self.optimizer,
            self.task,
            batch,
            step,
            lr,
            self.train,
            self.optim,
            world,
            decay=weight_decay(self.optim, step, self.steps),
        )
        self.state.losses.add(loss, step)
        self.task.on_step_end(step)
        if self.ema is not None:
            self.ema.update_parameters(self.task.module)
        self.state.step += 1
        return lr

    def _log_and_evaluate(self, lr: float) -> None:
        """After a step, add a row to the log and evaluate, each if it is due."""
        state, step = self.state, self.state.step
        at_evaluation = step % self.eval_every == 0 or step == self.steps
        at_log = step % self.train.log_every == 0 or step == self.steps
        if at_evaluation or at_log:
            self._check_losses()  # waits for the device
        state.training_seconds += time.monotonic() - self._tick
        speed = step * self.stream.batch_size / state.training_seconds
        row = {"step": step, "epoch": step / self.stream.steps_per_epoch, "lr": lr}
        logged: dict[str, Any] = {}
        if at_log:
            left, loss = (self.steps - step) * state.training_seconds / step, state.losses.logged()
            logged |= {**row, "loss": loss, "images_per_second": speed, "seconds_left": left}
            if self.log is not None:
                self.world.on_main(self.log.add, logged)
        if at_evaluation:
            self._refresh()
            self.evaluator.run(state, row, speed, self.checkpoints.saved_step)
            logged |= state.history[-1]
            self._train_mode()
        if self._trackers and (at_log or at_evaluation):
            self._track(step, logged)
        self._progress.update(step, _note(speed, state.history))
        self._tick = time.monotonic()

    def _finish(self) -> FitResult:
        """Load the kept weights into the task's module."""
        state, module, world = self.state, self.task.module, self.world
        self._refresh()
        world.average_statistics(self.kept)
        keep_best = self.train.early_stopping.keep == "best" and bool(state.best_weights)
        if keep_best or self.kept is not module:
            load_full_state(module, state.best_weights if keep_best else full_state(self.kept))
        # The last step may have made the weights NaN or infinite, too.
        weights = full_state(module, keep=world.is_main)
        world.on_main(check_weights, weights, state.step, self._last_lr(), self.checkpoints.saved_step)
        return FitResult(
            steps=state.step,
            best_step=state.best.best_step if keep_best else state.step,
            history=history_table(state.history),
            seconds=state.seconds,
            phases=PhaseTimes(
                {"training": state.training_seconds, "evaluation": max(0.0, state.seconds - state.training_seconds)}
            ),
            images_per_second=state.step * self.stream.batch_size / max(state.training_seconds, 1e-9),
        )

    def _refresh(self) -> None:
        """Compute the averaged weights that are evaluated and kept, and running statistics, if there are any."""
        if self._refreshed == self.state.step:
            return
        self._refreshed = self.state.step
        if self.averaged is not None:
            self.averaged.refresh(self.task.module, self.optimizer)
        if self._statistics is not None:
            self._statistics(self.evaluated)

    def _check_losses(self) -> None:
        self.state.losses.check(self.optim, self.steps, self.checkpoints.saved_step)

    def _last_lr(self) -> float:
        return learning_rate(self.optim, max(0, self.state.step - 1), self.steps)


def training_step(
    module: Any,
    fabric: lightning_fabric.Fabric,
    optimizer: torch.optim.Optimizer,
    task: TrainingTask,
    batch: Batch,
    step: int,
    lr: float,
    train: TrainConfig,
    optim: OptimConfig,
    world: World | None = None,
    *,
    decay: float | None = None,
) -> torch.Tensor:
    """Update the weights once; the batch is processed in portions of ``micro_batch``.

    Args:
        module: the task's module, as ``fabric.setup`` wraps it.
        fabric: device and precision.
        optimizer: of ``module``.
        task: the loss.
        batch: this process's share of the batch: B rows of each tensor, on the host or on the device.
        step: index of the batch.
        lr: learning rate of this step. A parameter group with ``lr_scale`` (layer-wise decay) uses that share of it.
        train: for ``micro_batch``.
        optim: for ``clip_norm`` and ``clip_each``.
        world: the processes; None if ``fabric`` has one.
        decay: weight decay of this step for the groups that have one; None if it is constant.

    Returns:
        () this process's share of the batch's loss, detached, on the device. The loss is the sum over all processes.
    """
    world = world or World(fabric)
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
        if decay is not None and group["weight_decay"] > 0:
            group["weight_decay"] = decay
    weight = world.sum(task.normalizer(batch, step).to(fabric.device, non_blocking=True))
    total = torch.zeros((), device=fabric.device)
    size = len(next(iter(batch.values())))
    portion = min(train.micro_batch or size, size)
    optimizer.zero_grad()
    for start in range(0, size, portion):
        rows = {
            key: value[start : start + portion].to(fabric.device, non_blocking=True) for key, value in batch.items()
        }
        if "seeds" in batch:
            rows[ON_HOST] = batch["seeds"][start : start + portion]
        with world.last_synced(module, start + portion >= size):
            loss = task.loss(module, rows, step) / weight
            fabric.backward(loss * world.size)  # gradients are averaged over the processes
        total += loss.detach()
    if optim.clip_norm is not None and optim.clip_each:
        for parameter in module.parameters():
            nn.utils.clip_grad_norm_(parameter, optim.clip_norm)
    elif optim.clip_norm is not None:
        fabric.clip_gradients(module, optimizer, max_norm=optim.clip_norm, error_if_nonfinite=False)
    task.on_gradients(step)
    optimizer.step()
    return total


def history_table(history: list[HistoryRow]) -> pd.DataFrame:
    """Return ``history.csv``: ``_HISTORY_COLUMNS``, and the other figures of the rows."""
    more = [key for row in history for key in row if key not in _HISTORY_COLUMNS]
    return pd.DataFrame(history, columns=[*_HISTORY_COLUMNS, *dict.fromkeys(more)])


def _note(speed: float, history: list[HistoryRow]) -> str:
    note = f"{speed:.1f} images/s"
    if history and (loss := history[-1]["val_loss"]) is not None:
        note += f", val loss {loss:.3f}"
    return note
