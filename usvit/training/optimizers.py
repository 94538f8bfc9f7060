"""Optimizers (from timm, and schedule-free AdamW) and learning-rate schedules per step."""

import math
from typing import Any

import torch
from timm.optim import create_optimizer_v2
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from usvit.config import OptimConfig, Training
from usvit.errors import UsvitError
from usvit.training.initial_weights import decay_to_initial
from usvit.training.parameter_groups import check_layers, hidden_matrices, parameter_groups
from usvit.training.schedule_free import ScheduleFreeAdamW

_TIMM_NAMES = {
    "sgd": "momentum",
    "adam": "adam",
    "adamw": "adamw",
    "lamb": "lamb",
    "muon": "muon",
    "nadamuon": "nadamuon",
}
"""timm's "sgd" uses Nesterov momentum; the papers mean plain momentum unless they say otherwise."""
_NESTEROV = {"sgd": "sgd", "muon": "nmuon"}
_MUON = ("muon", "nadamuon")
_FUSED = ("sgd", "adam", "adamw")
"""Optimizers of PyTorch, whose fused kernels read and write each parameter once; they differ from the others by
rounding."""


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """Make the optimizer of a recipe for the trainable parameters. Only matrices get weight decay.

    Biases, scales and embeddings (``parameter_kinds``) get none, or embeddings too with ``config.decay_embeddings``.
    With ``config.layer_decay`` = d, the groups of layer l of L carry ``lr_scale`` = d ** (L - l), the head's 1
    (Bao et al. 2022, BEiT; Clark et al. 2020, ELECTRA); the layers are those of ``rate_scales``.
    timm's LAMB (You et al. 2020) also clips gradients to a norm of 1, its default, which is kept.

    Muon and NAdaMuon (timm's) train the matrices of ``hidden_matrices`` and leave all other parameters to AdamW, with
    the same learning rate: the update of a matrix is scaled to the root mean square of AdamW's, 0.2 (Liu et al. 2025,
    Muon is Scalable for LLM Training, section 2.2). The queries, keys and values of ``qkv`` are one matrix.

    With ``config.momentum_dtype`` = bfloat16, the momentum is rounded to bfloat16 after each step, as if it were stored
    so and the step were computed in float32. It is held as float32, because PyTorch converts the state of an optimizer
    to the type of its parameters when a run is resumed.

    Args:
        model: the network.
        config: the optimizer and its settings.

    Raises:
        UsvitError: layer-wise decay is set, but the network does not assign its parameters to layers.
    """
    if config.name == "logistic":
        raise UsvitError("optim.name=logistic is for 'usvit cv' and 'usvit train': set optim.name=adamw.")
    # PyTorch has no fused SGD for parameters that FSDP has divided among processes.
    divided = any(isinstance(parameter, DTensor) for parameter in model.parameters())
    fused: dict[str, Any] = {"fused": True} if config.name in _FUSED and not divided else {}
    names = {name for name, _ in model.named_parameters()}
    groups = parameter_groups(model, config, names - hidden_matrices(model) if config.name in _MUON else set())
    if config.name == "schedule_free_adamw":
        return ScheduleFreeAdamW(groups, lr=config.lr, **_moments(config))
    optimizer = create_optimizer_v2(
        groups,
        opt=_NESTEROV[config.name] if config.nesterov and config.name in _NESTEROV else _TIMM_NAMES[config.name],
        lr=config.lr,
        weight_decay=config.weight_decay,
        momentum=config.momentum,  # only SGD and Muon read it
        **_moments(config),
        **fused,
    )
    if config.decay_to == "initial":
        decay_to_initial(model, optimizer, decoupled=config.name == "adamw")
    if config.momentum_dtype == "bfloat16":
        optimizer.register_step_post_hook(_round_momentum)
    return optimizer


def check_optimizer(model: nn.Module, training: Training) -> None:
    """Raise if the optimizer of a recipe cannot train the trainable parameters of a network as it is meant to.

    Raises:
        UsvitError: Muon has no matrix to train, or averaged weights would be evaluated with batch normalisation whose
            statistics belong to other weights.
    """
    config, share = training.optim, training.train.initial_share
    if config.layer_decay is not None:
        check_layers(model)
    if config.name in _MUON and not hidden_matrices(model):
        raise UsvitError(
            f"optim.name={config.name} trains hidden matrices, and of this network ({type(model).__name__}) none is "
            "trained: set optim.name=adamw, which trains all that is left, or another model.tune."
        )
    averages = config.name == "schedule_free_adamw" or share > 0
    if averages and training.batch_norm == "as_is" and trains_batch_norm(model):
        setting = "train.initial_share" if share > 0 else "optim.name=schedule_free_adamw"
        raise UsvitError(
            f"{setting} evaluates averaged weights, but the running statistics of batch normalisation in this network "
            f"({type(model).__name__}) belong to the weights before the average: set train.batch_norm to recomputed "
            "('usvit cv' and 'usvit train') or frozen, or choose a network without batch normalisation."
        )


def trains_batch_norm(model: nn.Module) -> bool:
    """Return whether a network has batch normalisation with a trained scale or shift."""
    norms = (module for module in model.modules() if isinstance(module, _BatchNorm))
    return any(parameter.requires_grad for norm in norms for parameter in norm.parameters())


@torch.no_grad()
def _round_momentum(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for state in optimizer.state.values():
        for key in ("momentum_buffer", "exp_avg"):
            if (momentum := state.get(key)) is not None:
                momentum.copy_(momentum.bfloat16())


def _moments(config: OptimConfig) -> dict[str, Any]:
    if config.name == "sgd":
        return {}
    given = {"betas": config.betas, "eps": config.eps}
    return {key: value for key, value in given.items() if value is not None}


def resolve(config: OptimConfig, batch_size: int, steps_per_epoch: float) -> OptimConfig:
    """Return the config with learning rates for this batch size (``lr_batch``) and the warm-up in steps."""
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


def learning_rate(config: OptimConfig, step: int, steps: int) -> float:
    """Compute the learning rate of one step.

    It rises linearly from zero to ``config.lr`` over the warm-up (and is above zero at step 0). Then it stays constant,
    falls to ``config.min_lr`` after the last step by a half cosine or linearly, or falls tenfold at each drop.

    Args:
        config: peak rate, warm-up steps and schedule, from ``resolve``.
        step: in [0, steps).
        steps: number of steps of the training.
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


def weight_decay(config: OptimConfig, step: int, steps: int) -> float | None:
    """Compute the weight decay of one step; None if it is constant.

    It goes from ``config.weight_decay`` at step 0 to ``config.weight_decay_end`` after the last step by a half cosine,
    without a warm-up (Caron et al. 2021, DINO). Until then it is above 0.

    Args:
        config: from ``resolve``.
        step: in [0, steps).
        steps: number of steps of the training.
    """
    if config.weight_decay_end is None:
        return None
    return half_cosine(config.weight_decay, config.weight_decay_end, step, steps)


def half_cosine(start: float, end: float, step: int, steps: int) -> float:
    """Return the value at ``step`` of a half cosine from ``start`` at step 0 to ``end`` after ``steps`` steps."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * step / steps))
