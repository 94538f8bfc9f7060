"""The one training loop: fine-tuning, and later pre-training, are calls of ``fit``."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning_fabric
import pandas as pd
import torch
from torch import nn

from usvit.config import OptimConfig, TrainConfig
from usvit.data.loading import TrainBatches
from usvit.errors import UsvitError
from usvit.models.tune import train_mode
from usvit.progress import Progress
from usvit.train.checkpoint import load_checkpoint, save_checkpoint
from usvit.train.early_stopping import BestSoFar
from usvit.train.losses import WeightedCrossEntropy
from usvit.train.optim import learning_rate, make_optimizer

Prepare = Callable[[torch.Tensor], torch.Tensor]
"""From a batch of images (or features), on the device, to the network's input."""

HISTORY_COLUMNS = ["step", "epoch", "lr", "train_loss", "val_loss", "val_accuracy", "val_auc", "images_per_second"]


@dataclass(frozen=True)
class FitResult:
    """A finished training; the model holds the kept weights."""

    steps: int
    best_step: int
    history: pd.DataFrame
    """One row an evaluation; ``HISTORY_COLUMNS``."""
    seconds: float
    """Wall time of the loop, evaluations included, over all resumed parts."""
    images_per_second: float
    """Training images over the time spent training."""


def fit(
    model: nn.Module,
    fabric: lightning_fabric.Fabric,
    batches: TrainBatches,
    prepare: Prepare,
    loss_fn: WeightedCrossEntropy,
    evaluate: Callable[[nn.Module], dict[str, float | None]],
    *,
    train: TrainConfig,
    optim: OptimConfig,
    checkpoint: Path,
    name: str,
    progress: Progress,
) -> FitResult:
    """Train a model, keep its best weights, and survive being killed at any moment.

    Args:
        model: from what ``prepare`` gives, (B, 3, S, S) float, to (B, K) logits; trained in place, but for
            parameters that need no gradient: these have no part in the optimiser, and modules that hold no others
            stay in eval mode.
        fabric: device and precision.
        batches: the endless stream of training batches.
        prepare: from a batch to the model's input, applied on the device: ``Preprocessing.normalised``, or what
            makes the input of a head.
        loss_fn: the weighted loss.
        evaluate: called in eval mode; returns val_loss, val_accuracy, val_auc (None: undefined).
        train, optim: the recipe.
        checkpoint: file of the unfinished state; read if it is there, left there at the end (the
            caller deletes it once the results are written).
        name: shown with the progress.
        progress: where progress is shown.

    Raises:
        UsvitError: the loss is no longer finite, or the disk is full.
    """
    optimizer = make_optimizer(model, optim)
    wrapped, optimizer = fabric.setup(model, optimizer)
    loss_fn = loss_fn.to(fabric.device)
    steps = train.steps or math.ceil((train.epochs or 0) * batches.steps_per_epoch)
    eval_every = min(train.eval_every or math.ceil(batches.steps_per_epoch), steps)

    best = BestSoFar(train.early_stopping)
    best_weights: dict[str, torch.Tensor] = {}
    history: list[dict[str, Any]] = []
    step, seconds, training_seconds = 0, 0.0, 0.0
    loss_sum = torch.zeros((), device=fabric.device)  # on the device: reading it every step would stall a GPU

    if state := load_checkpoint(checkpoint):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        best.load(state["best"])
        best_weights, history, step = state["best_weights"], state["history"], state["step"]
        seconds, training_seconds = state["seconds"], state["training_seconds"]
        loss_sum += state["loss_sum"].to(fabric.device)

    def save() -> None:
        save_checkpoint(
            checkpoint,
            {
                "step": step,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "best": best.state(),
                "best_weights": best_weights,
                "history": history,
                "loss_sum": loss_sum.cpu(),
                "seconds": seconds + time.monotonic() - begun,
                "training_seconds": training_seconds,
            },
        )

    progress.start(name, steps, "steps", done=step)
    begun = saved = time.monotonic()
    try:
        if step < steps and not best.should_stop:
            train_mode(wrapped)
            tick = time.monotonic()
            for images, targets in batches.iterate(step, steps):
                lr = learning_rate(optim, step, steps)
                loss_sum += training_step(
                    wrapped, fabric, optimizer, loss_fn, prepare, images, targets, lr, train, optim
                )
                step += 1
                if at_evaluation := step % eval_every == 0 or step == steps:
                    since = history[-1]["step"] if history else 0
                    train_loss = _finite(loss_sum.item() / (step - since), step)  # waits for the device
                training_seconds += time.monotonic() - tick
                speed = step * batches.batch_size / training_seconds
                if at_evaluation:
                    loss_sum.zero_()
                    figures = _evaluated(wrapped, evaluate)
                    row = {"step": step, "epoch": step / batches.steps_per_epoch, "lr": lr, "train_loss": train_loss}
                    history.append({**row, **figures, "images_per_second": round(speed, 2)})
                    if best.update(step, figures[train.early_stopping.monitor]):
                        best_weights = {key: value.detach().cpu().clone() for key, value in model.state_dict().items()}
                    if best.should_stop:
                        break
                progress.update(step, _note(speed, history))
                if time.monotonic() - saved >= train.checkpoint_seconds:
                    save()
                    saved = time.monotonic()
                tick = time.monotonic()
    finally:
        progress.finish()
    if train.early_stopping.keep == "best" and best_weights:
        model.load_state_dict(best_weights)
    kept = best.best_step if train.early_stopping.keep == "best" and best_weights else step
    total = seconds + time.monotonic() - begun
    return FitResult(
        steps=step,
        best_step=kept,
        history=pd.DataFrame(history, columns=HISTORY_COLUMNS),
        seconds=total,
        images_per_second=step * batches.batch_size / max(training_seconds, 1e-9),
    )


def training_step(
    model: Any,
    fabric: lightning_fabric.Fabric,
    optimizer: torch.optim.Optimizer,
    loss_fn: WeightedCrossEntropy,
    prepare: Prepare,
    images: torch.Tensor,
    targets: torch.Tensor,
    lr: float,
    train: TrainConfig,
    optim: OptimConfig,
) -> torch.Tensor:
    """One update of the weights, the batch in portions of ``micro_batch``.

    Args:
        prepare: from images on the device to the model's input.
        images: (B, S, S, 3) uint8, on the host.
        targets: (B,) int64, on the host.
        lr: of this step; a group of parameters with ``lr_scale`` (layer-wise decay) has that share of it.

    Returns:
        The batch's loss, detached, on the device.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    targets = targets.to(fabric.device, non_blocking=True)
    weight = loss_fn.batch_weight(targets)
    total = torch.zeros((), device=fabric.device)
    portion = train.micro_batch or len(images)
    optimizer.zero_grad()
    for start in range(0, len(images), portion):
        inputs = prepare(images[start : start + portion].to(fabric.device, non_blocking=True))
        loss = loss_fn(model(inputs), targets[start : start + portion], weight)
        fabric.backward(loss)
        total += loss.detach()
    if optim.clip_norm is not None:
        fabric.clip_gradients(model, optimizer, max_norm=optim.clip_norm, error_if_nonfinite=False)
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


def _evaluated(model: Any, evaluate: Callable[[nn.Module], dict[str, float | None]]) -> dict[str, float | None]:
    figures = evaluate(model)
    train_mode(model)
    return figures


def _finite(loss: float, step: int) -> float:
    if not math.isfinite(loss):
        raise UsvitError(
            f"The training loss is {loss} at step {step}: training has diverged. "
            "Lower optim.lr, set optim.clip_norm=1, or use --precision fp32."
        )
    return loss


def _note(speed: float, history: list[dict[str, Any]]) -> str:
    note = f"{speed:.1f} images/s"
    if history and history[-1]["val_loss"] is not None:
        note += f", val loss {history[-1]['val_loss']:.3f}"
    return note
