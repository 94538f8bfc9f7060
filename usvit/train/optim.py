"""Optimisers (through timm) and learning-rate schedules, per step."""

import math

import torch
from timm.optim import create_optimizer_v2
from torch import nn

from usvit.config import OptimConfig
from usvit.errors import UsvitError

_TIMM_NAMES = {"sgd": "momentum", "adam": "adam", "adamw": "adamw", "lamb": "lamb"}
"""In timm, "sgd" is Nesterov's; the papers mean plain momentum."""


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
        opt=_TIMM_NAMES[config.name],
        lr=config.lr,
        weight_decay=config.weight_decay,
        momentum=config.momentum,  # read by SGD alone
        layer_decay=config.layer_decay,
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
    constant, or by a half cosine or a straight line to zero after the last step.

    Args:
        config: peak rate, warm-up steps and course.
        step: in [0, steps).
        steps: length of the training.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * progress))
    if config.schedule == "linear":
        return config.lr * (1 - progress)
    return config.lr
