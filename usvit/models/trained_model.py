"""Networks that usvit trained, loaded from ``model.safetensors`` and their metadata ``model.json``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import nn

from usvit.config import ViTConfig
from usvit.data.splits import seen_by
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.build import build_model, count_parameters
from usvit.models.spec import ModelSpec
from usvit.models.trainable import head_names
from usvit.models.weights import Weights, only_fold, read_state_dict, refuse_endless, resolve_weights
from usvit.models.zoo import find_model
from usvit.records import ClassifierMetadata, ModelMetadata, ThresholdRecord, load_record

SEGMENTER_FILE = "segmenter.safetensors"
"""The head of a segmentation, beside its network."""
TEXT_FILE = "text.safetensors"
"""A text tower, beside the network whose features it meets."""
CAPTIONS_FILE = "captions.safetensors"
"""A decoder that writes captions, beside the network whose features it meets."""
UPSTREAM = "pretrain"
"""Value of ``stage`` in the metadata of initial weights, which are not a classifier of ultrasound images."""


@dataclass(frozen=True)
class TrainedModel:
    """Trained network with everything that is needed to use it."""

    model: nn.Module = field(repr=False)
    """(B, 3, S, S) float -> (B, K) logits, in evaluation mode."""
    spec: ModelSpec
    metadata: ClassifierMetadata = field(repr=False)
    """``model.json``."""
    preprocessing: Preprocessing

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the logits."""
        return tuple(self.metadata.classes)

    @property
    def positive(self) -> str:
        return self.metadata.positive_class

    @property
    def temperature(self) -> float | None:
        """Divisor of the logits before the softmax, above 0; None if none was fitted."""
        return self.metadata.temperature

    @property
    def thresholds(self) -> dict[str, ThresholdRecord]:
        """Rule (``sensitivity >= 0.9``) -> its entry in the metadata."""
        return {entry.rule: entry for entry in self.metadata.thresholds}


def load_trained(folder: Path) -> TrainedModel:
    """Load the network of one fold, with its head, onto the CPU, in evaluation mode.

    The state of torch's global random generator does not change.

    Args:
        folder: Folder of a fold (``runs/x/fold-0``), or of a finished run with a single fold (``usvit train``).

    Raises:
        UsvitError: If the folder is neither, or if metadata or weights are missing, damaged, or do not belong together.
    """
    fold = only_fold(folder)
    file, where = fold / "model.safetensors", fold / "model.json"
    if not where.is_file():
        raise UsvitError(f"{fold} has no model.json, the metadata of its network. Copy it beside {file.name}.")
    if load_record(where, ModelMetadata).stage == UPSTREAM:
        raise UsvitError(
            f"{where} describes a network that 'usvit pretrain' or 'usvit transfer' made: it is not a classifier of "
            f"ultrasound images yet. Fine-tune it first: usvit cv --weights {fold}."
        )
    metadata = load_record(where, ClassifierMetadata)
    model, spec = load_network(fold, metadata)
    return TrainedModel(model, spec, metadata, Preprocessing.of_record(metadata.preprocessing))


def load_network(fold: Path, metadata: ModelMetadata) -> tuple[nn.Module, ModelSpec]:
    """Load the network that metadata describe onto the CPU, in evaluation mode; of any stage.

    Args:
        fold: Folder with ``model.safetensors`` and ``model.json``.
        metadata: Content of ``model.json``.

    Raises:
        UsvitError: Metadata or weights are damaged or do not belong together.
    """
    file, where = fold / "model.safetensors", fold / "model.json"
    seen_by(metadata, fold)
    spec, preprocessing = _spec(metadata, where), Preprocessing.of_record(metadata.preprocessing)
    n_classes, stated = len(metadata.classes), metadata.weights_sha256
    refuse_endless(file)
    if stated is not None and stated != sha256_of_file(file):
        raise UsvitError(
            f"The weights {file} are not those that {where} describes: their SHA-256 differs. "
            "Copy both from the same fold."
        )
    what = f"{file} are not those of {spec.name}"
    if metadata.adapter is None:
        weights, state = Weights("scratch"), read_state_dict(file)
        _refuse_larger(spec, n_classes, preprocessing.image_size, state, what)
    else:
        # The base gives all tensors except the head's, into which the adapters are merged.
        weights = resolve_weights(str(fold), spec)
        state = weights.read().tensors
        _refuse_larger(spec, n_classes, preprocessing.image_size, _with_base(weights), what)
    with torch.random.fork_rng(devices=[]):
        model = build_model(spec, weights, n_classes=n_classes, image_size=preprocessing.image_size)
    try:
        if metadata.adapter is None:
            model.load_state_dict(state)
        else:
            _load_head(model, state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(
            f"The weights {file} are not those of {spec.name} with {n_classes} classes, which {where} "
            f"describes. Copy both from the same fold. ({reason})"
        ) from error
    return model.eval(), spec


def _with_base(weights: Weights) -> dict[str, torch.Tensor]:
    """Return the tensors of adapters and, twice, of their base, whose positions may be enlarged to a larger image."""
    found: dict[str, torch.Tensor] = {}
    level: Weights | None = weights
    while level is not None:
        found |= {f"{len(found)}.{key}": value for key, value in level.read().tensors.items()}
        if level.base is None:
            found |= {f"twice.{key}": value for key, value in level.read().tensors.items()}
        level = level.base
    return found


def _load_head(model: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Load the head of a network from the file of its adapters.

    Raises:
        RuntimeError: A tensor is missing or has another shape.
    """
    own = head_names(model)
    if missing := sorted(own - set(state)):
        raise RuntimeError(f"the head lacks {', '.join(missing[:3])}")
    model.load_state_dict({key: state[key] for key in own}, strict=False)


def _refuse_larger(
    spec: ModelSpec, n_classes: int, image_size: int, state: Mapping[str, torch.Tensor], what: str
) -> None:
    """Refuse a network with more parameters than its weights file, before memory is allocated for it.

    Args:
        spec, n_classes, image_size: The network.
        state: Content of the weights file.
        what: File and network, for the error message.
    """
    held = sum(tensor.numel() for tensor in state.values())
    blocks, width = (0, 0) if spec.shape is None else (spec.shape.depth * spec.shape.branches, spec.shape.width)
    # A block of a ViT has several tensors and more than width x width numbers, so that absurd depths are refused early.
    if blocks <= len(state) and blocks * width**2 <= held:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = build_model(spec, Weights("scratch"), n_classes=n_classes, image_size=image_size)
        if count_parameters(model) <= held:
            return
    raise UsvitError(
        f"The weights {what}: the file holds only {held:,} numbers, which are too few. Copy both from the same fold."
    )


def _spec(metadata: ModelMetadata, where: Path) -> ModelSpec:
    """Return the network that metadata describes."""
    try:
        vit = ViTConfig(**metadata.vit).model_dump(exclude_none=True)
        return find_model(metadata.architecture, vit, metadata.features)
    except UsvitError as error:
        raise UsvitError(f"{where}: {error}") from error
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The metadata {where} is damaged: {reason}. Copy the fold's own again.") from error
