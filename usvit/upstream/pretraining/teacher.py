"""The teacher of a distillation: a frozen network of the zoo with the head that it was trained with."""

from pathlib import Path

import torch
from torch import nn

from usvit.data.splits import load_metadata
from usvit.errors import UsvitError
from usvit.models import (
    ModelSpec,
    Statistics,
    Weights,
    blank,
    build_model,
    check_classes,
    find_model,
    fold_folders,
    forward_macs,
    input_statistics,
    load_head,
    resolve_weights,
)
from usvit.training import resolve_device
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.pretraining.task import UpstreamModel

_HINT = "Choose a teacher that was trained on the same classes, in the same order (distill.teacher, distill.weights)."


class Teacher:
    """Frozen network that computes logits of the student's images.

    It is not a module, so that it is neither trained nor saved with the student.

    Args:
        model: maps (B, 3, T, T) float to (B, K) logits; it is frozen here.
        image_size: side T of its input in pixels.
        mean, std: normalization of its input, per channel on the scale [0, 1].
        student: mean and standard deviation with which the student's images are normalized.
        device: device of the teacher.
        bf16: whether to use bfloat16 autocast.
        origin: the record of the network, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        image_size: int,
        mean: Statistics,
        std: Statistics,
        student: tuple[Statistics, Statistics],
        device: torch.device,
        bf16: bool = False,
        origin: UpstreamModel | None = None,
    ):
        self.origin = origin
        self.model = model.eval().requires_grad_(False).to(device)
        self._image_size, self._bf16 = image_size, bf16
        # (x * s + m - mean) / std, as one product and one sum per channel
        ours = [torch.tensor(values, dtype=torch.float64) for values in (*student, mean, std)]
        self._scale = (ours[1] / ours[3]).float().view(1, 3, 1, 1).to(device)
        self._shift = ((ours[0] - ours[2]) / ours[3]).float().view(1, 3, 1, 1).to(device)

    def macs(self) -> int:
        """Count the multiply-accumulate operations of one image's forward pass."""
        return forward_macs(self.model, blank(self._image_size))

    @torch.no_grad()
    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (B, 3, S, S) float, the student's input, to (B, K) float32 logits.

        Images are resized if the teacher's input has another size (bicubic with antialiasing).
        """
        images = inputs.float()
        if images.shape[-1] != self._image_size:
            size = (self._image_size, self._image_size)
            images = nn.functional.interpolate(images, size, mode="bicubic", antialias=True)
        images = images * self._scale + self._shift
        self.model.eval()  # train() may have been called on an object that holds it
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self._bf16):
            logits: torch.Tensor = self.model(images)
        return logits.float()


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
