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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from usvit.config import OptimConfig, TrainConfig
from usvit.data.stream import Batch, Stream
from usvit.errors import UsvitError
from usvit.models.tune import train_mode
from usvit.progress import Progress
from usvit.train.checkpoint import load_checkpoint, save_checkpoint
from usvit.train.early_stopping import BestSoFar
from usvit.train.objective import Objective, Prepare
from usvit.train.optim import learning_rate, make_optimizer, resolve

HISTORY_COLUMNS = ["step", "epoch", "lr", "train_loss", "val_loss", "val_accuracy", "val_auc", "images_per_second"]

Figures = dict[str, float | None]


class Log(Protocol):
    """Where rows of the step log go (``usvit.train.step_log``)."""

    def resume(self, step: int) -> None:
        """The training goes on after ``step``: rows of later ones are of a process that was killed."""

    def add(self, row: Mapping[str, float]) -> None:
        """One row: step, epoch, lr, loss, images_per_second, seconds_left."""


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
) -> FitResult:
    """Train, keep the best weights, and survive being killed at any moment.

    Args:
        objective: what is minimised; its module is trained in place, but for parameters that need no gradient: these
            have no part in the optimiser, and modules that hold no others stay in eval mode.
        fabric: device and precision.
        stream: the endless stream of training batches.
        evaluate: called with the module (its running mean, where ``train.ema`` is set) in eval mode; returns val_loss,
            val_accuracy, val_auc (None: undefined), and more.
        train, optim: the recipe.
        checkpoint: file of the unfinished state; read if it is there, left there at the end (the
            caller deletes it once the results are written).
        name: shown with the progress.
        progress: where progress is shown.
        log: gets a row every ``train.log_every`` steps.

    Raises:
        UsvitError: the loss is no longer finite, or the disk is full.
    """
    module = objective.module
    optim = resolve(optim, train.batch_size, stream.steps_per_epoch)
    optimizer = make_optimizer(module, optim)
    if train.channels_last:
        module.to(memory_format=torch.channels_last)
    if train.compile:
        module.compile()
    wrapped, optimizer = fabric.setup(module, optimizer)
    mean = _running_mean(module, train.ema)
    evaluated = wrapped if mean is None else fabric.setup_module(mean.module)
    kept = module if mean is None else mean.module
    steps = train.steps or math.ceil((train.epochs or 0) * stream.steps_per_epoch)
    eval_every = min(train.eval_every or math.ceil(stream.steps_per_epoch), steps)

    best = BestSoFar(train.early_stopping)
    best_weights: dict[str, torch.Tensor] = {}
    history: list[dict[str, Any]] = []
    step, seconds, training_seconds = 0, 0.0, 0.0
    losses = _Losses(fabric.device)

    if state := load_checkpoint(checkpoint):
        module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if mean is not None:
            mean.load_state_dict(state["mean"])
        best.load(state["best"])
        best_weights, history, step = state["best_weights"], state["history"], state["step"]
        seconds, training_seconds = state["seconds"], state["training_seconds"]
        losses.load(state["losses"])
    good = step  # the last checkpoint's
    if log is not None:
        log.resume(step)

    def save() -> None:
        nonlocal good
        save_checkpoint(
            checkpoint,
            {
                "step": step,
                "model": module.state_dict(),
                "mean": {} if mean is None else mean.state_dict(),
                "optimizer": optimizer.state_dict(),
                "best": best.state(),
                "best_weights": best_weights,
                "history": history,
                "losses": losses.state(),
                "seconds": seconds + time.monotonic() - begun,
                "training_seconds": training_seconds,
            },
        )
        good = step

    progress.start(name, steps, "steps", done=step)
    begun = saved = time.monotonic()
    try:
        if step < steps and not best.should_stop:
            train_mode(wrapped)
            tick = time.monotonic()
            for batch in stream.iterate(step, steps):
                lr = learning_rate(optim, step, steps)
                losses.add(training_step(wrapped, fabric, optimizer, objective, batch, step, lr, train, optim), step)
                objective.updated(step)
                if mean is not None:
                    mean.update_parameters(module)
                step += 1
                at_evaluation = step % eval_every == 0 or step == steps
                at_log = log is not None and (step % train.log_every == 0 or step == steps)
                at_save = time.monotonic() - saved >= train.checkpoint_seconds
                if at_evaluation or at_log or at_save:
                    losses.check(optim, steps, good)  # waits for the device
                training_seconds += time.monotonic() - tick
                speed = step * stream.batch_size / training_seconds
                row = {"step": step, "epoch": step / stream.steps_per_epoch, "lr": lr}
                if log is not None and at_log:
                    left = (steps - step) * training_seconds / step
                    log.add({**row, "loss": losses.logged(), "images_per_second": speed, "seconds_left": left})
                if at_evaluation:
                    figures = _evaluated(evaluated, evaluate)
                    train_mode(wrapped)
                    history.append(
                        {**row, "train_loss": losses.epoch(), **figures, "images_per_second": round(speed, 2)}
                    )
                    if best.update(step, figures[train.early_stopping.monitor]):
                        best_weights = {key: value.detach().cpu().clone() for key, value in kept.state_dict().items()}
                    if best.should_stop:
                        break
                progress.update(step, _note(speed, history))
                if at_save:
                    save()
                    saved = time.monotonic()
                tick = time.monotonic()
    finally:
        progress.finish()
    keep_best = train.early_stopping.keep == "best" and bool(best_weights)
    if keep_best or mean is not None:
        module.load_state_dict(best_weights if keep_best else kept.state_dict())
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
) -> torch.Tensor:
    """One update of the weights, the batch in portions of ``micro_batch``.

    Args:
        module: the objective's, as ``fabric.setup`` wraps it.
        batch: B rows of each of its tensors, on the host.
        step: its number.
        lr: of this step; a group of parameters with ``lr_scale`` (layer-wise decay) has that share of it.

    Returns:
        The batch's loss, detached, on the device.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    weight = objective.weight(batch, step).to(fabric.device, non_blocking=True)
    total = torch.zeros((), device=fabric.device)
    size = len(next(iter(batch.values())))
    portion = train.micro_batch or size
    optimizer.zero_grad()
    for start in range(0, size, portion):
        rows = {
            key: value[start : start + portion].to(fabric.device, non_blocking=True) for key, value in batch.items()
        }
        loss = objective.loss(module, rows, step) / weight
        fabric.backward(loss)
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


class _Losses:
    """Means of the loss, kept on the device: reading it every step would stall a GPU."""

    def __init__(self, device: torch.device):
        zero, none = torch.zeros((), device=device), torch.full((), -1, dtype=torch.int64, device=device)
        self._tensors = {"since_log": zero.clone(), "since_evaluation": zero, "first_bad": none}
        self._steps = {"since_log": 0, "since_evaluation": 0}

    def add(self, loss: torch.Tensor, step: int) -> None:
        bad = self._tensors["first_bad"]
        bad.copy_(torch.where((bad < 0) & ~loss.isfinite(), step, bad))
        for span in self._steps:
            self._tensors[span] += loss
            self._steps[span] += 1

    def check(self, optim: OptimConfig, steps: int, good: int) -> None:
        """Raise if a loss was not finite."""
        bad = int(self._tensors["first_bad"].item())
        if bad >= 0:
            kept = f"the last good checkpoint is of step {good}" if good else "there was no checkpoint yet"
            raise UsvitError(
                f"The training loss is no finite number at step {bad + 1} (learning rate "
                f"{learning_rate(optim, bad, steps):.3g}): training has diverged; {kept}. "
                "Lower optim.lr, set optim.clip_norm=1, or use --precision fp32."
            )

    def logged(self) -> float:
        """Mean since the last row of the log."""
        return self._mean("since_log")

    def epoch(self) -> float:
        """Mean since the last evaluation."""
        return self._mean("since_evaluation")

    def state(self) -> dict[str, Any]:
        return {"tensors": {key: value.cpu() for key, value in self._tensors.items()}, "steps": dict(self._steps)}

    def load(self, state: dict[str, Any]) -> None:
        for key, value in state["tensors"].items():
            self._tensors[key].copy_(value)
        self._steps = dict(state["steps"])

    def _mean(self, span: str) -> float:
        mean = self._tensors[span].item() / max(1, self._steps[span])
        self._tensors[span].zero_()
        self._steps[span] = 0
        return mean


def _running_mean(module: nn.Module, decay: float | None) -> AveragedModel | None:
    """A copy of the weights that follows them, w <- decay w + (1 - decay) new; buffers are the newest."""
    if decay is None:
        return None
    return AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=False)


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
