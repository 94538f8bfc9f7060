"""Build a network with the right head from a specification and weights."""

from typing import Any

import timm
import timm.data
import torch
from timm.layers import PatchEmbed
from torch import nn

import usvit.models.architectures  # noqa: F401  (registers ours with timm)
from usvit.errors import UsvitError
from usvit.models.lora import load_lora, lora_config
from usvit.models.regularize import Schedule, set_drop_path, set_dropout
from usvit.models.spec import ModelSpec
from usvit.models.weights import LoadReport, Weights, hub_entry, load_checkpoint

Statistics = tuple[float, float, float]
LARGE_HEAD = 4.0
"""A new head is large if a weight is above this, in units of 1 / sqrt(inputs), PyTorch's largest. timm draws that of
EfficientNet (and MobileNetV3) from +-1 / sqrt(classes): 0.03 with the 1,000 classes for which it was made, and 0.58
with three, 21 times PyTorch's. Logits then start at several units, which a short fine-tuning does not undo."""


def build_model(
    spec: ModelSpec,
    weights: Weights,
    *,
    n_classes: int,
    image_size: int,
    drop_path: float = 0.0,
    drop_path_schedule: Schedule = "model",
    dropout: float = 0.0,
) -> nn.Module:
    """Build a network as ``build_with_report`` does, without the report."""
    return build_with_report(
        spec,
        weights,
        n_classes=n_classes,
        image_size=image_size,
        drop_path=drop_path,
        drop_path_schedule=drop_path_schedule,
        dropout=dropout,
    )[0]


def build_with_report(
    spec: ModelSpec,
    weights: Weights,
    *,
    n_classes: int,
    image_size: int,
    drop_path: float = 0.0,
    drop_path_schedule: Schedule = "model",
    dropout: float = 0.0,
) -> tuple[nn.Module, LoadReport]:
    """Build a network with pre-trained or random weights and a new head, and report what was loaded.

    The head is always new, including its hidden layer. Except for CNNs it starts at zero, as in AugReg's
    fine-tuning (Steiner et al. 2022; Dosovitskiy et al. 2021, section 3.2), so that training begins at equal
    probabilities. So does that of a CNN with given weights if its own would start with far larger weights
    (``LARGE_HEAD``). Position and patch embeddings are resized if the weights have another size.

    Random numbers (a new head, all weights from scratch) are drawn from torch's global generator.

    Args:
        spec: Specification of the network.
        weights: Result of ``resolve_weights``; for a run with several folds, one of ``weights.folds``.
        n_classes: Number of outputs K.
        image_size: Side of the square input in pixels.
        drop_path: Rate of stochastic depth in [0, 1).
        drop_path_schedule: Distribution of this rate over the layers (``set_drop_path``).
        dropout: Rate of dropout within the blocks, in [0, 1) (``set_dropout``).

    Returns:
        A module from (B, 3, S, S) float to (B, K) logits in training mode, and the report.

    Raises:
        UsvitError: If the network does not support these parts, this size or these rates, or if the weights belong to
            another network.
    """
    options: dict[str, Any] = {"drop_path_rate": drop_path} if drop_path else {}
    options |= spec.options
    config = timm.get_pretrained_cfg(spec.architecture)
    fixed = config is not None and config.fixed_input_size
    other_size = fixed and config is not None and config.input_size[-1] != image_size
    # Other networks have a built-in size, too, but only ViTs always accept the option.
    if other_size or (fixed and spec.family not in ("cnn", "patchconvnet", "hierarchical")):
        options["img_size"] = image_size
    if spec.parts:
        options["image_size"] = image_size
    try:
        model: nn.Module = timm.create_model(spec.architecture, num_classes=n_classes, **options)
        set_drop_path(model, drop_path, drop_path_schedule)
        set_dropout(model, dropout)
        _try_out(model, image_size)
    except (TypeError, AssertionError, ValueError, RuntimeError) as error:
        raise _impossible(spec, image_size, error) from error
    report = LoadReport()
    if weights.source != "scratch" or weights.parts:
        report = _load(model, weights, spec, image_size)
    if spec.family != "cnn" or (weights.source != "scratch" and _has_large_head(model)):
        _zero_head(model)
    return model, report


def _load(model: nn.Module, weights: Weights, spec: ModelSpec, image_size: int) -> LoadReport:
    """Load all weights except the head's; adapters are merged into those of their base."""
    where = str(weights.path or weights.name)
    if weights.parts:
        return _load_parts(model, weights, spec, image_size)
    if weights.base is not None:
        assert weights.metadata is not None and weights.metadata.adapter is not None
        report = _load(model, weights.base, spec, image_size)
        load_lora(model, weights.read().tensors, lora_config(weights.metadata.adapter), image_size, where)
        return report
    try:
        return load_checkpoint(model, weights.read(), file=where, name=spec.name)
    except UsvitError as error:
        raise UsvitError(f"{error}{_parts_of(weights)}") from error


def _load_parts(model: Any, weights: Weights, spec: ModelSpec, image_size: int) -> LoadReport:
    """Load the weights of each network of a head on frozen features."""
    report = LoadReport(new=tuple(key for key in model.state_dict() if key.startswith(("hidden.", "fc."))))
    for index, (network, part, own) in enumerate(zip(model.networks, weights.parts, spec.parts, strict=True)):
        if part.source != "scratch":
            report = report.joined(_load(network, part, own, image_size), f"networks.{index}.")
    model.match_statistics([input_statistics(own, part) for own, part in zip(spec.parts, weights.parts, strict=True)])
    return report


def _parts_of(weights: Weights) -> str:
    """Return the settings of the network that usvit trained, for an error message."""
    parts = weights.metadata and weights.metadata.vit
    if not parts:
        return ""
    return " They were trained with " + " ".join(f"--set model.vit.{key}={value}" for key, value in parts.items()) + "."


def _impossible(spec: ModelSpec, image_size: int, error: Exception) -> UsvitError:
    reason = " ".join(str(error).split())[:200]
    if "drop_path_rate" in reason:
        return UsvitError(f"The model {spec.name} has no stochastic depth: set model.drop_path to 0.")
    if "drop_rate" in reason:
        return UsvitError(f"The model {spec.name} has no dropout in its blocks: set model.dropout to 0.")
    if "unexpected keyword argument 'img_size'" in reason:
        return UsvitError(
            f"The model {spec.name} takes only images of {spec.image_size} x {spec.image_size} pixels: set "
            f"model.image_size to {spec.image_size}."
        )
    if spec.changed:
        parts = ", ".join(f"model.vit.{key}={value}" for key, value in spec.changed.items())
        return UsvitError(
            f"The model {spec.name} with {parts} cannot be built for images of {image_size} x {image_size} pixels: "
            f"{reason}. Set other parts, or another model.image_size."
        )
    return UsvitError(
        f"The model {spec.name} cannot take images of {image_size} x {image_size} pixels"
        f"{f' ({reason})' if reason else ''}: set another model.image_size."
    )


def _has_large_head(model: nn.Module) -> bool:
    return any(
        float(layer.weight.detach().abs().max()) * layer.weight[0].numel() ** 0.5 > LARGE_HEAD
        for classifier in _classifiers(model)
        for layer in classifier.modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    )


def _zero_head(model: nn.Module) -> None:
    """Set the weights and biases of the classifier's last layer to zero; layers before it keep theirs."""
    for classifier in _classifiers(model):
        layers = [layer for layer in classifier.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
        for parameter in layers[-1].parameters() if layers else ():
            nn.init.zeros_(parameter)


def start_off_zero(model: nn.Module) -> None:
    """Initialise a classifier of zeros with a truncated normal (sd 0.02), as timm and DeiT do (Hanin & Rolnick 2018).

    LAMB (You et al. 2020, Algorithm 2) needs this because it moves a matrix by a fraction of the matrix's own norm. A
    matrix that starts at zero grows from almost nothing by a factor of 1 + rate per step, and stays near zero for a
    whole fine-tuning at DeiT III's rate of 3e-4.
    """
    for classifier in _classifiers(model):
        for parameter in classifier.parameters():
            if parameter.ndim > 1 and not parameter.any():
                nn.init.trunc_normal_(parameter, std=0.02)


def _classifiers(model: nn.Module) -> tuple[nn.Module, ...]:
    head = model.get_classifier()  # type: ignore[operator]
    return tuple(head) if isinstance(head, tuple | nn.ModuleList) else (head,)  # a distilled network has two


def input_statistics(spec: ModelSpec, weights: Weights | None = None) -> tuple[Statistics, Statistics]:
    """Return the mean and standard deviation of each channel, on the scale [0, 1], that the weights expect.

    Args:
        spec: Specification of the network.
        weights: Initial weights. The hub's weights, and those that usvit trained, state their statistics; for other
            weights, the statistics of the recommended weights are assumed.
    """
    ours = weights.metadata.preprocessing if weights and weights.metadata else None
    if ours is None and spec.parts:  # images come with the statistics of the first network
        return input_statistics(spec.parts[0], weights.parts[0] if weights and weights.parts else None)
    chosen = hub_entry(spec, weights)
    foundation = chosen.foundation if chosen else None
    if ours is not None:
        mean, std = tuple(ours.mean), tuple(ours.std)
    elif foundation is not None and foundation.mean is not None and foundation.std is not None:
        mean, std = foundation.mean, foundation.std
    else:
        config = timm.get_pretrained_cfg(chosen.timm if chosen and chosen.timm else spec.architecture)
        mean, std = (config.mean, config.std) if config else ((0.5,) * 3, (0.5,) * 3)
    return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])


def timm_test_config(spec: ModelSpec, weights: Weights | None = None) -> dict[str, Any] | None:
    """Return how timm tests the weights: ``input_size``, ``crop_pct``, ``crop_mode``, ``interpolation``, and others.

    Args:
        spec: Specification of the network.
        weights: The weights; for those that are not of the hub, the recommended weights count.

    Returns:
        The keys of timm's ``resolve_data_config``; None if timm has no configuration of the network.
    """
    chosen = hub_entry(spec, weights)
    if chosen is not None and chosen.timm is None:
        return None
    config = timm.get_pretrained_cfg(chosen.timm if chosen and chosen.timm else spec.architecture)
    if config is None:
        return None
    found: dict[str, Any] = timm.data.resolve_data_config(pretrained_cfg=config.to_dict(), use_test_size=True)
    return found


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _try_out(model: nn.Module, image_size: int) -> None:
    """Run one blank image through the network, so that an impossible size fails before any other work."""
    embed = getattr(model, "patch_embed", None) or getattr(model, "stem", None)  # ResMLP calls it its stem
    patch = max(embed.patch_size) if isinstance(embed, PatchEmbed) else 1
    if image_size % patch:
        raise ValueError(f"not a multiple of its patch size {patch}")
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1, 3, image_size, image_size))
    model.train()
