"""The one training loop: fine-tuning and pre-training are calls of ``fit`` with another objective."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import lightning_fabric
import pandas as pd
import torch
from torch import nn

from usvit.config import OptimConfig, TrainConfig
from usvit.data.stream import Batch, Stream
from usvit.errors import UsvitError
from usvit.models.tune import train_mode
from usvit.progress import Progress
from usvit.train.checkpoint import load_checkpoint, save_checkpoint
from usvit.train.device import check_compiler
from usvit.train.distributed import (
    PATIENCE,
    Team,
    full_optimizer_state,
    full_state,
    load_full_optimizer_state,
    load_full_state,
)
from usvit.train.early_stopping import BestSoFar
from usvit.train.lost import lost_processes
from usvit.train.objective import ON_HOST, Objective, Prepare
from usvit.train.optim import learning_rate, make_optimizer, resolve
from usvit.train.running_loss import RunningLoss, check_weights, diverged
from usvit.train.running_mean import RunningMean
from usvit.train.stopping import stop_requests, stopped

HISTORY_COLUMNS = ["step", "epoch", "lr", "train_loss", "val_loss", "val_accuracy", "val_auc", "images_per_second"]

Figures = dict[str, float | None]


class Log(Protocol):
    """Where rows of the step log go (``usvit.train.step_log``); the first of several processes alone writes it."""

    def resume(self, step: int) -> None:
        """The training goes on after ``step``: rows of later ones are of a process that was killed."""

    def add(self, row: Mapping[str, float]) -> None:
        """One row: step, epoch, lr, loss, images_per_second, seconds_left."""

    def evaluated(self, step: int, figures: Mapping[str, Any]) -> None:
        """Figures of an evaluation after ``step``."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class FitResult:
    """A finished training; the objective's module holds the kept weights."""

    steps: int
    best_step: int
    history: pd.DataFrame
    """One row an evaluation; ``HISTORY_COLUMNS``, and whatever else ``evaluate`` gave."""
    seconds: float
    """Wall time of the loop, evaluations included, over all resumed parts."""
    images_per_second: float
    """Training images over the time spent training."""

    def describe(self) -> dict[str, Any]:
        """For ``run.json``: times and rates to a tenth."""
        return {
            "steps": self.steps,
            "best_step": self.best_step,
            "seconds": round(self.seconds, 1),
            "images_per_second": round(self.images_per_second, 1),
        }


def fit(
    objective: Objective,
    fabric: lightning_fabric.Fabric,
    stream: Stream,
    evaluate: Callable[[nn.Module], Figures],
    *,
    train: TrainConfig,
    optim: OptimConfig,
    checkpoint: Path,
    name: str,
    progress: Progress,
    log: Log | None = None,
    identity: str = "",
) -> FitResult:
    """Train, keep the best weights, and survive being killed at any moment.

    Args:
        objective: what is minimised; its module is trained in place, but for parameters that need no gradient: these
            have no part in the optimiser, and modules that hold no others stay in eval mode.
        fabric: device, precision and processes (``usvit.train.distributed.launch``).
        stream: the endless stream of training batches; of several processes, each has its share.
        evaluate: called, in all processes, with the module (its running mean, where ``train.ema`` is set) in eval mode;
            returns val_loss, val_accuracy, val_auc (None: undefined), and more; what the first process says counts.
        train, optim: the recipe.
        checkpoint: file of the unfinished state; read if it is there, left there at the end (the
            caller deletes it once the results are written).
        name: shown with the progress.
        progress: where progress is shown.
        log: gets a row every ``train.log_every`` steps.
        identity: of the training: a checkpoint of another one is refused. "": only one that does not fit is.

    Raises:
        UsvitError: the loss or a weight is no longer finite, the disk is full, the checkpoint is of another training,
            a process that took part is gone, or nothing can compile.
        Stopped: a signal asked for it; the state is on the disk.
    """
    module, team = objective.module, Team(fabric, PATIENCE)
    optim = resolve(optim, train.batch_size, stream.steps_per_epoch)
    if train.channels_last:
        module.to(memory_format=torch.channels_last)
    if train.compile:
        check_compiler(fabric.device.type, "train.compile", "set train.compile to false")
        module.compile()
    mean = None if train.ema is None else RunningMean(module, train.ema)  # before parameters are dealt out
    wrapped, optimizer = team.setup(module, lambda: make_optimizer(module, optim))
    evaluated = wrapped if mean is None else team.setup_mean(mean.module)
    kept = module if mean is None else mean.module
    steps = train.steps or math.ceil((train.epochs or 0) * stream.steps_per_epoch)
    eval_every = min(train.eval_every or math.ceil(stream.steps_per_epoch), steps)

    best = BestSoFar(train.early_stopping)
    best_weights: dict[str, torch.Tensor] = {}
    history: list[dict[str, Any]] = []
    step, seconds, training_seconds = 0, 0.0, 0.0
    losses = RunningLoss(team)

    def resume() -> None:
        nonlocal best_weights, history, step, seconds, training_seconds
        state = load_checkpoint(checkpoint)
        if state is None:
            return
        try:
            if state.get("identity", identity) != identity:  # older ones have none
                raise ValueError("it has other settings, images or first weights")
            load_full_state(module, state["model"])
            load_full_optimizer_state(optimizer, state["optimizer"])
            if mean is not None:
                load_full_state(mean, state["mean"])
            best.load(state["best"])
            best_weights, history, step = state["best_weights"], state["history"], state["step"]
            seconds, training_seconds = state["seconds"], state["training_seconds"]
            losses.load(state["losses"])
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UsvitError(
                f"The checkpoint {checkpoint} is of another training ({reason}). Put the run's own back, or delete it "
                "to begin this fold again."
            ) from error

    team.together(resume)
    team.check_same(step)
    good = step  # the last checkpoint's
    if log is not None:
        team.first_does(log.resume, step)

    begun = saved = time.monotonic()

    def save() -> None:
        nonlocal good, saved
        team.average_statistics(module)
        whole: dict[str, Any] = {
            "identity": identity,
            "step": step,
            "model": full_state(module, keep=team.first),
            "mean": {} if mean is None else full_state(mean, keep=team.first),
            "optimizer": full_optimizer_state(optimizer, keep=team.first),
            "best": best.state(),
            "best_weights": best_weights,
            "history": history,
            "losses": losses.state(),
            "seconds": seconds + time.monotonic() - begun,
            "training_seconds": training_seconds,
        }
        lr = learning_rate(optim, max(0, step - 1), steps)
        team.first_does(check_weights, whole["model"], step, lr, good)
        team.first_does(save_checkpoint, checkpoint, whole)
        good, saved = step, time.monotonic()

    batches = stream.iterate(step, steps)
    progress.start(name, steps, "steps", done=step)
    try:
        with stop_requests() as stop, lost_processes(lambda: good, batches):
            if step < steps and not best.should_stop:
                train_mode(wrapped)
                tick = time.monotonic()
                for batch in batches:
                    asked, at_save = team.any(
                        stop.name is not None, time.monotonic() - saved >= train.checkpoint_seconds and step > good
                    )
                    if asked or at_save:
                        losses.check(optim, steps, good)
                        if step > good:
                            save()
                        tick = time.monotonic()
                    if asked:
                        team.wait()  # whoever leaves first would take the first process with it, which still writes
                        raise stopped(stop.name or "a signal to another process", step, team.first)
                    lr = learning_rate(optim, step, steps)
                    team.reseed(stream.seed, step)
                    losses.add(
                        training_step(wrapped, fabric, optimizer, objective, batch, step, lr, train, optim, team), step
                    )
                    objective.updated(step)
                    if mean is not None:
                        mean.update_parameters(module)
                    step += 1
                    at_evaluation = step % eval_every == 0 or step == steps
                    at_log = step % train.log_every == 0 or step == steps
                    if at_evaluation or at_log:
                        losses.check(optim, steps, good)  # waits for the device
                    training_seconds += time.monotonic() - tick
                    speed = step * stream.batch_size / training_seconds
                    row = {"step": step, "epoch": step / stream.steps_per_epoch, "lr": lr}
                    if at_log:
                        left, loss = (steps - step) * training_seconds / step, losses.logged()
                        if log is not None:
                            told = {**row, "loss": loss, "images_per_second": speed, "seconds_left": left}
                            team.first_does(log.add, told)
                    if at_evaluation:
                        team.average_statistics(kept)
                        figures = team.from_first(_evaluated(evaluated, evaluate))
                        train_mode(wrapped)
                        val_loss = figures["val_loss"]
                        if val_loss is not None and not math.isfinite(val_loss):
                            what = f"The validation loss is no finite number after step {step}"
                            raise diverged(what, lr, good, team)
                        if log is not None:
                            team.first_does(log.evaluated, step, figures)
                        history.append(
                            {**row, "train_loss": losses.epoch(), **figures, "images_per_second": round(speed, 2)}
                        )
                        if best.update(step, figures[train.early_stopping.monitor]):
                            best_weights = {key: value.clone() for key, value in full_state(kept).items()}
                        if best.should_stop:
                            break
                    progress.update(step, _note(speed, history))
                    tick = time.monotonic()
                if team.any(stop.name is not None)[0]:  # it came in the last step
                    save()
                    team.wait()
                    raise stopped(stop.name or "a signal to another process", step, team.first)
    finally:
        progress.finish()
        if log is not None:
            log.close()
    team.average_statistics(kept)
    keep_best = train.early_stopping.keep == "best" and bool(best_weights)
    if keep_best or mean is not None:
        load_full_state(module, best_weights if keep_best else full_state(kept))
    # The last update, too, may have been one too many.
    result = full_state(module, keep=team.first)
    team.first_does(check_weights, result, step, learning_rate(optim, max(0, step - 1), steps), good)
    return FitResult(
        steps=step,
        best_step=best.best_step if keep_best else step,
        history=pd.DataFrame(history, columns=_columns(history)),
        seconds=seconds + time.monotonic() - begun,
        images_per_second=step * stream.batch_size / max(training_seconds, 1e-9),
    )


def training_step(
    module: Any,
    fabric: lightning_fabric.Fabric,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    batch: Batch,
    step: int,
    lr: float,
    train: TrainConfig,
    optim: OptimConfig,
    team: Team | None = None,
) -> torch.Tensor:
    """One update of the weights, the batch in portions of ``micro_batch``.

    Args:
        module: the objective's, as ``fabric.setup`` wraps it.
        batch: B rows of each of its tensors, on the host: this process's share of the batch.
        step: its number.
        lr: of this step; a group of parameters with ``lr_scale`` (layer-wise decay) has that share of it.
        team: the processes; None: ``fabric`` has one.

    Returns:
        This process's part of the batch's loss, detached, on the device; the loss is their sum.
    """
    team = team or Team(fabric)
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    weight = team.sum(objective.weight(batch, step).to(fabric.device, non_blocking=True))
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
        with team.last_synced(module, start + portion >= size):
            loss = objective.loss(module, rows, step) / weight
            fabric.backward(loss * team.world)  # the processes' gradients are averaged
        total += loss.detach()
    if optim.clip_norm is not None:
        fabric.clip_gradients(module, optimizer, max_norm=optim.clip_norm, error_if_nonfinite=False)
    optimizer.step()
    return total


def predict_logits(
    model: Any, fabric: lightning_fabric.Fabric, prepare: Prepare, batches: Iterator[torch.Tensor]
) -> torch.Tensor:
    """Logits of all images of ``batches``, in their order: (N, K) float32 on the CPU; leaves eval mode on."""
    model.eval()
    with torch.inference_mode():
        logits = [model(prepare(images.to(fabric.device))).float().cpu() for images in batches]
    return torch.cat(logits)


def _evaluated(module: Any, evaluate: Callable[[nn.Module], Figures]) -> Figures:
    module.eval()
    return evaluate(module)


def _columns(history: list[dict[str, Any]]) -> list[str]:
    more = [key for row in history for key in row if key not in HISTORY_COLUMNS]
    return [*HISTORY_COLUMNS, *dict.fromkeys(more)]


def _note(speed: float, history: list[dict[str, Any]]) -> str:
    note = f"{speed:.1f} images/s"
    if history and history[-1]["val_loss"] is not None:
        note += f", val loss {history[-1]['val_loss']:.3f}"
    return note
