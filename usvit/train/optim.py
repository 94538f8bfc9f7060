"""Optimisers (through timm) and learning-rate schedules, per step."""

import math
from typing import Any

import torch
from timm.optim import create_optimizer_v2
from torch import nn

from usvit.config import OptimConfig
from usvit.errors import UsvitError

_TIMM_NAMES = {"sgd": "momentum", "adam": "adam", "adamw": "adamw", "lamb": "lamb"}
"""In timm, "sgd" is Nesterov's; the papers mean plain momentum, unless they say so."""


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """The optimiser of a recipe, over the parameters that train; biases and normalisation layers are not decayed.

    With ``config.layer_decay`` = d, the groups of layer l of L carry ``lr_scale`` = d ** (L - l), the head's 1
    (Bao et al. 2022, BEiT; Clark et al. 2020, ELECTRA); the layers are those of the network's ``group_matcher``.
    timm's LAMB (You et al. 2020) also clips by its own default norm of 1; that is kept.

    Raises:
        UsvitError: layer-wise decay of a network whose layers are not known.
    """
    if config.layer_decay is not None:
        check_layers(model)
    return create_optimizer_v2(
        model,
        opt="sgd" if config.name == "sgd" and config.nesterov else _TIMM_NAMES[config.name],
        lr=config.lr,
        weight_decay=config.weight_decay,
        momentum=config.momentum,  # read by SGD alone
        layer_decay=config.layer_decay,
        **_moments(config),
    )


def _moments(config: OptimConfig) -> dict[str, Any]:
    if config.name == "sgd":
        return {}
    given = {"betas": config.betas, "eps": config.eps}
    return {key: value for key, value in given.items() if value is not None}


def resolve(config: OptimConfig, batch_size: int, steps_per_epoch: float) -> OptimConfig:
    """Rates for this batch size (``lr_batch``), and the warm-up in steps (``warmup_epochs``)."""
    scale = 1.0 if config.lr_batch is None else batch_size / config.lr_batch
    warmup = config.warmup_steps if config.warmup_epochs is None else round(config.warmup_epochs * steps_per_epoch)
    return config.model_copy(
        update={
            "lr": config.lr * scale,
            "min_lr": config.min_lr * scale,
            "warmup_steps": warmup,
            "lr_batch": None,
            "warmup_epochs": None,
        }
    )


def check_layers(model: nn.Module) -> None:
    """Whether a network says which layer each parameter belongs to: timm would else make groups of its own.

    Raises:
        UsvitError: it does not.
    """
    try:
        model.group_matcher(coarse=False)  # type: ignore[operator]
    except (AttributeError, AssertionError) as error:
        raise UsvitError(
            f"This network ({type(model).__name__}) does not say which layer its parameters belong to, "
            "so its learning rate cannot decay by layer: set optim.layer_decay to null."
        ) from error


def learning_rate(config: OptimConfig, step: int, steps: int) -> float:
    """The learning rate of one step.

    Linear from zero to ``config.lr`` over the warm-up (step 0 moves a little already), then
    constant, by a half cosine or a straight line to ``config.min_lr`` after the last step, or in three steps.

    Args:
        config: peak rate, warm-up steps and course, as ``resolve`` gives it.
        step: in [0, steps).
        steps: length of the training.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    if config.schedule == "cosine":
        return config.min_lr + (config.lr - config.min_lr) * 0.5 * (1 + math.cos(math.pi * progress))
    if config.schedule == "linear":
        return config.min_lr + (config.lr - config.min_lr) * (1 - progress)
    if config.schedule == "step":
        drops = 3 * step // steps if config.drops is None else sum(step >= drop for drop in config.drops)
        return config.lr * 0.1**drops
    return config.lr
