"""The teacher of a distillation: a network of the zoo with the head that it was trained with, frozen."""

from typing import Any

import torch
from torch import nn

from usvit.config import PretrainConfig
from usvit.errors import UsvitError
from usvit.models.build import Statistics, build_model, input_statistics
from usvit.models.spec import ModelSpec
from usvit.models.weights import Weights, resolve_weights
from usvit.models.weights.load import head_of
from usvit.models.weights.names import by_timm, to_network_names
from usvit.models.zoo import find_model
from usvit.train.device import resolve_device


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
    ):
        self.model = model.eval().requires_grad_(False).to(device)
        self._image_size, self._bf16 = image_size, bf16
        # (x * s + m - mean) / std, as one product and one sum of each channel
        ours = [torch.tensor(values, dtype=torch.float64) for values in (*student, mean, std)]
        self._scale = (ours[1] / ours[3]).float().view(1, 3, 1, 1).to(device)
        self._shift = ((ours[0] - ours[2]) / ours[3]).float().view(1, 3, 1, 1).to(device)

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
    # A teacher that usvit trained may have parts of its own.
    own_parts = (weights.passport or {}).get("vit")
    return (find_model(config.distill.teacher, own_parts) if own_parts else spec), weights


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
    _check_classes(spec, weights, classes)
    try:
        with torch.random.fork_rng(devices=[]):
            model = build_model(spec, weights, n_classes=n_classes, image_size=size)
    except UsvitError as error:
        raise UsvitError(
            f"The teacher {spec.name} cannot be made for images of {size} x {size} pixels (distill.image_size sets "
            f"its own): {error}"
        ) from error
    if weights.source != "scratch":
        load_head(model, weights, spec, n_classes)
    mean, std = input_statistics(spec, weights)
    bf16 = resolve_device(config.device, config.precision).precision == "bf16"
    return Teacher(model, image_size=size, mean=mean, std=std, student=student, device=device, bf16=bf16)


def load_head(model: nn.Module, weights: Weights, spec: ModelSpec, n_classes: int) -> None:
    """Put the head of a checkpoint, which fine-tuning leaves out, into the network.

    Raises:
        UsvitError: the file has no head, or one of other classes.
    """
    where = weights.path.name if weights.source == "file" and weights.path else weights.name
    named = to_network_names(weights.read(), model)
    by_timm(named, model)
    is_head = head_of(model)
    own: dict[str, Any] = {key: value for key, value in model.state_dict().items() if is_head(key)}
    missing = [key for key in own if key not in named.tensors]
    if missing:
        raise UsvitError(
            f"The weights {where} of the teacher {spec.name} have no head ({', '.join(missing[:3])}), so it cannot "
            "name classes. Choose weights that were trained on labels (distill.weights)."
        )
    head = {key: named.tensors[key] for key in own}
    wrong = [key for key, value in head.items() if value.shape != own[key].shape]
    if wrong:
        there = head[next((key for key in wrong if key.endswith("bias")), wrong[0])].shape[0]
        raise UsvitError(
            f"The teacher {spec.name} ({where}) knows {there} classes, and the images have {n_classes}: it cannot "
            "teach them. Choose a teacher that was trained on the same classes (distill.teacher, distill.weights)."
        )
    model.load_state_dict(head, strict=False)


def _check_classes(spec: ModelSpec, weights: Weights, classes: tuple[str, ...]) -> None:
    theirs = (weights.passport or {}).get("classes")
    if not classes or not isinstance(theirs, list) or not theirs or tuple(map(str, theirs)) == classes:
        return
    pairs = enumerate(zip(theirs, classes, strict=False))
    different = (f"class {at} is {its} there and {ours} here" for at, (its, ours) in pairs if str(its) != ours)
    first = next(different, f"{len(theirs)} there and {len(classes)} here")
    raise UsvitError(
        f"The teacher {spec.name} ({weights.name}) was trained on other classes than the images have: {first}. "
        "Choose a teacher of the same classes, in the same order (distill.teacher, distill.weights)."
    )
