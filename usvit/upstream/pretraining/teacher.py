"""The teacher of a distillation: a frozen network of the zoo with the head that it was trained with."""

from pathlib import Path

import torch

from usvit.data.splits import load_metadata
from usvit.errors import UsvitError
from usvit.models import (
    ModelSpec,
    Statistics,
    UpstreamModel,
    Weights,
    build_model,
    check_classes,
    find_model,
    fold_folders,
    input_statistics,
    load_head,
    resolve_weights,
)
from usvit.training import Teacher, resolve_device
from usvit.upstream.config.pretrain import PretrainConfig

_HINT = "Choose a teacher that was trained on the same classes, in the same order (distill.teacher, distill.weights)."


def _find_teacher(config: PretrainConfig) -> tuple[ModelSpec, Weights]:
    """Find the network that ``distill`` names, and its weights with their hash.

    Raises:
        UsvitError: the network or the weights do not exist, or the weights are a run of several folds.
    """
    spec = find_model(config.distill.teacher)
    try:
        if own_parts := _own_parts(Path(config.distill.weights)):
            spec = find_model(config.distill.teacher, own_parts)
        weights = resolve_weights(config.distill.weights, spec)
    except UsvitError as error:
        raise UsvitError(
            f"The teacher {spec.name} has no weights (distill.weights: {config.distill.weights}). {error}"
        ) from error
    if weights.folds:
        raise UsvitError(
            f"distill.weights {config.distill.weights} is a run of {len(weights.folds)} folds, but a teacher is one "
            f"network. Name a fold: {config.distill.weights}/fold-0."
        )
    return spec, weights


def _own_parts(weights: Path) -> dict[str, object]:
    """Return the settings of a teacher that usvit trained, from its model metadata; {} for others."""
    if not weights.exists():
        return {}
    file = fold_folders(weights)[0] / "model.safetensors" if weights.is_dir() else weights
    metadata = load_metadata(file)
    return metadata.vit if metadata else {}


def make_teacher(
    config: PretrainConfig,
    student: tuple[Statistics, Statistics],
    *,
    n_classes: int,
    classes: tuple[str, ...] = (),
    device: torch.device,
) -> Teacher:
    """Make the teacher of a configuration. torch's global generator keeps its state.

    Args:
        config: ``config.distill`` names the network, the weights and the size.
        student: mean and standard deviation with which the student's images are normalized.
        n_classes: number of classes K of the student.
        classes: names of the student's classes, in order. If the teacher's metadata names classes, they must agree.
        device: device of the teacher.

    Raises:
        UsvitError: the network or the weights do not exist, the weights have no head or one for other classes, or the
            network does not support the size.
    """
    spec, weights = _find_teacher(config)
    size = config.distill.image_size or config.model.image_size
    who = f"The teacher {spec.name}"
    check_classes(weights, classes, f"{who} ({weights.name})", _HINT)
    try:
        with torch.random.fork_rng(devices=[]):
            model = build_model(spec, weights, n_classes=n_classes, image_size=size)
    except UsvitError as error:
        raise UsvitError(
            f"{who} cannot be built for images of {size} x {size} pixels (distill.image_size sets its size): {error}"
        ) from error
    if weights.source != "scratch":
        with torch.random.fork_rng(devices=[]):
            load_head(model, weights, n_classes, who, _HINT)
    mean, std = input_statistics(spec, weights)
    bf16 = resolve_device(config.device, config.precision).precision == "bf16"
    origin = UpstreamModel("teacher", spec.name, weights.sha256, weights.record(), weights.metadata, weights.path)
    return Teacher(model, image_size=size, mean=mean, std=std, student=student, device=device, bf16=bf16, origin=origin)
