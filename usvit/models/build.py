"""From a specification and weights to a network with the right head."""

from typing import Any

import timm
import torch
from timm.layers import PatchEmbed
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
    config = timm.get_pretrained_cfg(spec.timm_name)
    # Not ViTs alone have a size built in, but only they always take the option.
    other_size = config is not None and config.fixed_input_size and config.input_size[-1] != image_size
    if spec.family in ("vit", "hybrid") or other_size:
        options["img_size"] = image_size
    try:
        if weights.path is None:
            model = timm.create_model(spec.architecture, num_classes=n_classes, **options)
        else:
            model = _with_weights(spec, weights, options)
            model.reset_classifier(n_classes)  # type: ignore[operator]
        _try_out(model, image_size)
    except (TypeError, AssertionError, ValueError, RuntimeError) as error:
        if "drop_path_rate" in str(error):
            raise UsvitError(f"The model {spec.name} has no stochastic depth: set model.drop_path to 0.") from error
        reason = f" ({' '.join(str(error).split())[:200]})" if str(error) else ""
        raise UsvitError(
            f"The model {spec.name} cannot take images of {image_size} x {image_size} pixels{reason}: "
            "set another model.image_size."
        ) from error
    if spec.family in ("vit", "hybrid"):
        zero_head(model)
    return model


def zero_head(model: nn.Module) -> None:
    """Set the classifier's weights and biases to zero."""
    head = model.get_classifier()  # type: ignore[operator]
    for classifier in head if isinstance(head, tuple) else (head,):  # a distilled network has two
        for parameter in classifier.parameters():
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


def _try_out(model: nn.Module, image_size: int) -> None:
    """Let one blank image through, so that an impossible size shows before any work."""
    embed = getattr(model, "patch_embed", None)
    patch = max(embed.patch_size) if isinstance(embed, PatchEmbed) else 1
    if image_size % patch:
        raise ValueError(f"not a multiple of its patches of {patch}: the rest would be cut off")
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1, 3, image_size, image_size))
    model.train()


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
        model: nn.Module = timm.create_model(
            spec.architecture + _tag(spec),
            pretrained=True,
            pretrained_cfg_overlay=overlay,
            num_classes=n_file_classes,
            **options,
        )
        if spec.architecture == "inception_v3":  # its file has a second head, so timm lets any file pass
            missing = [key for key in model.state_dict() if key not in state and not key.endswith("batches_tracked")]
            if missing:
                raise RuntimeError(f"Missing key(s): {', '.join(missing)}")
    except (RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(
            f"The weights {weights.path} do not fit the model {spec.name}. Name the model that they were trained as, "
            f"or other weights. ({reason} ...)"
        ) from error
    return model


def _tag(spec: ModelSpec) -> str:
    return spec.timm_name.removeprefix(spec.architecture)


def _head_size(state: dict[str, torch.Tensor], classifier: str | tuple[str, ...] | None) -> int:
    """Outputs of the classifier in a file; 0 where it has none."""
    name = classifier if isinstance(classifier, str) else classifier[0] if classifier else "head"
    weight = state.get(f"{name}.weight")
    return 0 if weight is None else weight.shape[0]
