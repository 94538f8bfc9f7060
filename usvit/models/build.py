"""From a specification and weights to a network with the right head."""

from typing import Any

import timm
import torch
from torch import nn

from usvit.errors import UsvitError
from usvit.models.weights import Weights, read_state_dict
from usvit.models.zoo import ModelSpec


def build_model(
    spec: ModelSpec, weights: Weights, *, n_classes: int, image_size: int, drop_path: float = 0.0
) -> nn.Module:
    """A network with pre-trained or random weights and a new head.

    The head is new in any case. For ViTs and hybrids it starts at zero, as AugReg fine-tunes
    (Steiner et al. 2022; Dosovitskiy et al. 2021, section 3.2), so that training begins at equal
    probabilities. Position embeddings are resized where ``image_size`` is not the weights' own.

    Random numbers (a new head, all weights from scratch) come from torch's global generator.

    Args:
        spec: which network.
        weights: found by ``resolve_weights``.
        n_classes: outputs K.
        image_size: side of the square input, in pixels.
        drop_path: stochastic depth rate in [0, 1).

    Returns:
        A module from (B, 3, S, S) float to (B, K) logits.

    Raises:
        UsvitError: the network cannot take this size or rate, or the weights are another network's.
    """
    options: dict[str, Any] = {"drop_path_rate": drop_path} if drop_path else {}
    if spec.family in ("vit", "hybrid"):
        options["img_size"] = image_size
    try:
        if weights.path is None:
            model = timm.create_model(spec.architecture, num_classes=n_classes, **options)
        else:
            model = _with_weights(spec, weights, options)
            model.reset_classifier(n_classes)  # type: ignore[operator]
    except (TypeError, AssertionError, ValueError) as error:
        raise UsvitError(f"The model {spec.name} cannot be built with {options}: {error}") from error
    if spec.family in ("vit", "hybrid"):
        zero_head(model)
    return model


def zero_head(model: nn.Module) -> None:
    """Set the classifier's weights and biases to zero."""
    head: nn.Module = model.get_classifier()  # type: ignore[operator]
    for parameter in head.parameters():
        nn.init.zeros_(parameter)


def input_statistics(spec: ModelSpec) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation, of each channel on the scale [0, 1], that the network's weights expect."""
    config = timm.get_pretrained_cfg(spec.timm_name)
    if config is None:
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    mean, std = config.mean, config.std
    return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _with_weights(spec: ModelSpec, weights: Weights, options: dict[str, Any]) -> nn.Module:
    """The network as its file has it: with the file's own head, so that every other key must fit exactly."""
    assert weights.path is not None
    state = read_state_dict(weights.path)
    config = timm.get_pretrained_cfg(spec.timm_name)
    n_file_classes = _head_size(state, config.classifier if config else None)
    overlay = {
        "file": str(weights.path),
        "num_classes": n_file_classes,
        "custom_load": False,  # the tag's own file may be .npz; this one is not
    }
    try:
        return timm.create_model(
            spec.architecture + _tag(spec),
            pretrained=True,
            pretrained_cfg_overlay=overlay,
            num_classes=n_file_classes,
            **options,
        )
    except (RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:400]
        raise UsvitError(
            f"The weights {weights.path} do not fit the model {spec.name}: {reason} ... Name the model that they were "
            "trained as, or other weights."
        ) from error


def _tag(spec: ModelSpec) -> str:
    return spec.timm_name.removeprefix(spec.architecture)


def _head_size(state: dict[str, torch.Tensor], classifier: str | tuple[str, ...] | None) -> int:
    """Outputs of the classifier in a file; 0 where it has none."""
    name = classifier if isinstance(classifier, str) else classifier[0] if classifier else "head"
    weight = state.get(f"{name}.weight")
    return 0 if weight is None else weight.shape[0]
