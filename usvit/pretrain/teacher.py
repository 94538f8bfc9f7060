"""The teacher of a distillation: a network of the zoo with the head that it was trained with, frozen."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from usvit.config import PretrainConfig
from usvit.data.seen import passport_beside
from usvit.errors import UsvitError
from usvit.models.build import Statistics, build_model, input_statistics
from usvit.models.count import blank, forward_macs
from usvit.models.spec import ModelSpec
from usvit.models.weights import Weights, resolve_weights
from usvit.models.weights.runs import fold_folders
from usvit.models.zoo import find_model
from usvit.pretrain.heads import check_classes, load_head
from usvit.pretrain.origin import Origin
from usvit.train.device import resolve_device

HINT = "Choose a teacher that was trained on the same classes, in the same order (distill.teacher, distill.weights)."


class Teacher:
    """Logits of the images that the student sees, without a gradient.

    It is no module, so that it is neither trained nor saved with the student.

    Args:
        model: (B, 3, T, T) float -> (B, K) logits; frozen here.
        image_size: T, in pixels.
        mean, std: of each channel on the scale [0, 1], that it expects.
        student: the mean and standard deviation that the images come with.
        device: where it computes.
        bf16: whether under bfloat16 autocast.
        origin: which network it is, for the record.
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
        origin: Origin | None = None,
    ):
        self.origin = origin
        self.model = model.eval().requires_grad_(False).to(device)
        self._image_size, self._bf16 = image_size, bf16
        # (x * s + m - mean) / std, as one product and one sum of each channel
        ours = [torch.tensor(values, dtype=torch.float64) for values in (*student, mean, std)]
        self._scale = (ours[1] / ours[3]).float().view(1, 3, 1, 1).to(device)
        self._shift = ((ours[0] - ours[2]) / ours[3]).float().view(1, 3, 1, 1).to(device)

    def macs(self) -> int:
        """Multiply-accumulate operations of one image's forward pass."""
        return forward_macs(self.model, blank(self._image_size))

    @torch.no_grad()
    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) float, normalised for the student, augmented and mixed -> (B, K) float32 logits.

        The view is resized where the teacher's input is of another size (bicubic with antialiasing).
        """
        images = inputs.float()
        if images.shape[-1] != self._image_size:
            size = (self._image_size, self._image_size)
            images = nn.functional.interpolate(images, size, mode="bicubic", antialias=True)
        images = images * self._scale + self._shift
        self.model.eval()  # whatever train() was called on what holds it
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self._bf16):
            logits: torch.Tensor = self.model(images)
        return logits.float()


def find_teacher(config: PretrainConfig) -> tuple[ModelSpec, Weights]:
    """Which network ``distill`` names, and its weights, found and hashed; of several folds, one must be named.

    Raises:
        UsvitError: there is no such network, or no such weights.
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
            f"distill.weights {config.distill.weights} is a run of {len(weights.folds)} folds, and a teacher is one "
            f"network. Name a fold: {config.distill.weights}/fold-0."
        )
    return spec, weights


def _own_parts(weights: Path) -> dict[str, Any]:
    """A teacher that usvit trained may have parts of its own, which its passport names."""
    if not weights.exists():
        return {}
    file = fold_folders(weights)[0] / "model.safetensors" if weights.is_dir() else weights
    return (passport_beside(file) or {}).get("vit") or {}


def make_teacher(
    config: PretrainConfig,
    student: tuple[Statistics, Statistics],
    *,
    n_classes: int,
    classes: tuple[str, ...] = (),
    device: torch.device,
) -> Teacher:
    """The teacher of a configuration, ready to be asked. torch's global generator is left as it was.

    Args:
        config: its ``distill`` says which network, weights and size.
        student: mean and standard deviation of the images that it will be given.
        n_classes: K of the student.
        classes: the student's names, in order; where the teacher's passport names its own, they must be the same.
        device: where it computes.

    Raises:
        UsvitError: no such network or weights, weights without a head or with one for other classes, or a size that
            the network cannot take.
    """
    spec, weights = find_teacher(config)
    size = config.distill.image_size or config.model.image_size
    who = f"The teacher {spec.name}"
    check_classes(weights, classes, f"{who} ({weights.name})", HINT)
    try:
        with torch.random.fork_rng(devices=[]):
            model = build_model(spec, weights, n_classes=n_classes, image_size=size)
    except UsvitError as error:
        raise UsvitError(
            f"{who} cannot be made for images of {size} x {size} pixels (distill.image_size sets its own): {error}"
        ) from error
    if weights.source != "scratch":
        with torch.random.fork_rng(devices=[]):
            load_head(model, weights, n_classes, who, HINT)
    mean, std = input_statistics(spec, weights)
    bf16 = resolve_device(config.device, config.precision).precision == "bf16"
    origin = Origin("teacher", spec.name, weights.sha256, weights.describe(), weights.passport, weights.path)
    return Teacher(model, image_size=size, mean=mean, std=std, student=student, device=device, bf16=bf16, origin=origin)
