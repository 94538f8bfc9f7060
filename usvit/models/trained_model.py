"""Networks that usvit trained, loaded from ``model.safetensors`` and their metadata ``model.json``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from usvit.config import ViTConfig
from usvit.data.splits import metadata_beside
from usvit.data.transforms import CROPS, Preprocessing
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.build import build_model, count_parameters
from usvit.models.spec import ModelSpec
from usvit.models.weights import Weights, read_state_dict, refuse_endless
from usvit.models.weights.run_folds import only_fold
from usvit.models.zoo import find_model

UPSTREAM = "pretrain"
"""Value of ``stage`` in the metadata of initial weights, which are no classifier of ultrasound images."""


@dataclass(frozen=True)
class TrainedModel:
    """Trained network with everything that is needed to use it."""

    model: nn.Module = field(repr=False)
    """(B, 3, S, S) float -> (B, K) logits, in evaluation mode."""
    spec: ModelSpec
    metadata: dict[str, Any] = field(repr=False)
    """``model.json``."""
    preprocessing: Preprocessing

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the logits."""
        return tuple(self.metadata["classes"])

    @property
    def positive(self) -> str:
        return str(self.metadata["positive_class"])

    @property
    def temperature(self) -> float | None:
        """Divisor of the logits before the softmax, above 0; None if none was fitted (schema 1.0 has none)."""
        stated = self.metadata.get("temperature")
        return None if stated is None else float(stated)

    @property
    def thresholds(self) -> dict[str, dict[str, Any]]:
        """Rule (``sensitivity >= 0.9``) -> its entry in the metadata; empty in schema 1.0."""
        return {entry["rule"]: entry for entry in self.metadata.get("thresholds") or []}


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
    metadata = metadata_beside(file)
    if metadata is None:
        raise UsvitError(f"{fold} has no model.json, the metadata of its network. Copy it beside {file.name}.")
    spec, preprocessing = _described(metadata, where)
    stated = metadata.get("weights_sha256")
    refuse_endless(file)
    if stated is not None and stated != sha256_of_file(file):
        raise UsvitError(
            f"The weights {file} are not those that {where} describes: their SHA-256 is another. "
            "Copy both from the same fold."
        )
    state = read_state_dict(file)
    _refuse_larger(
        spec, len(metadata["classes"]), preprocessing.image_size, state, f"{file} are not those of {spec.name}"
    )
    with torch.random.fork_rng(devices=[]):
        model = build_model(
            spec,
            Weights("scratch"),
            n_classes=len(metadata["classes"]),
            image_size=preprocessing.image_size,
        )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(
            f"The weights {file} are not those of {spec.name} with {len(metadata['classes'])} classes, which {where} "
            f"describes. Copy both from the same fold. ({reason})"
        ) from error
    return TrainedModel(model.eval(), spec, metadata, preprocessing)


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
    raise UsvitError(f"The weights {what}: the file holds {held:,} numbers, too few. Copy both from the same fold.")


def _described(metadata: dict[str, Any], where: Path) -> tuple[ModelSpec, Preprocessing]:
    """Check metadata and return the network and the preprocessing that it describes."""
    missing = [
        key
        for key in ("schema_version", "architecture", "classes", "positive_class", "preprocessing", "seen_sha256")
        if key not in metadata
    ]
    if missing:
        raise UsvitError(f"{where} is no metadata of usvit: it has no {', '.join(missing)}. Copy the fold's own again.")
    if metadata.get("stage") == UPSTREAM:
        raise UsvitError(
            f"{where} is of a network that 'usvit pretrain' or 'usvit transfer' made: it is no classifier of "
            "ultrasound images yet. "
            f"Fine-tune it first: usvit cv --weights {where.parent}."
        )
    if str(metadata["schema_version"]).partition(".")[0] != "1":
        raise UsvitError(
            f"{where} has the schema version {metadata['schema_version']}, and this usvit reads 1.x. Update usvit."
        )
    try:
        classes = metadata["classes"]
        if not isinstance(classes, list) or len(classes) < 2 or len(set(map(str, classes))) < len(classes):
            raise ValueError(f"classes are {classes!r}, not two or more different names")
        if metadata["positive_class"] not in classes:
            raise ValueError(f"the positive class {metadata['positive_class']!r} is not among the classes {classes}")
        preprocessing = _preprocessing(metadata["preprocessing"])
        _check_calibration(metadata)
        vit = ViTConfig(**metadata.get("vit", {})).model_dump(exclude_none=True)
        return find_model(str(metadata["architecture"]), vit), preprocessing
    except UsvitError as error:
        raise UsvitError(f"{where}: {error}") from error
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The metadata {where} is damaged: {reason}. Copy the fold's own again.") from error


def _check_calibration(metadata: dict[str, Any]) -> None:
    """Raise ValueError if temperature or thresholds are not as in schema 1.1; schema 1.0 has none."""
    temperature, thresholds = metadata.get("temperature"), metadata.get("thresholds")
    if temperature is not None and not (_number(temperature) and temperature > 0):
        raise ValueError(f"the temperature is {temperature!r}, not a number above 0")
    for entry in thresholds or []:
        text = isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("rule", "chosen_on"))
        if not text or not (entry.get("threshold") is None or _number(entry["threshold"])):
            raise ValueError(f"a threshold is {entry!r}")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _preprocessing(stated: dict[str, Any]) -> Preprocessing:
    mean, std = (tuple(float(value) for value in stated[key]) for key in ("mean", "std"))
    size, resize, crop = stated["image_size"], stated["resize"], stated.get("crop", "tissue")
    if not isinstance(size, int) or size < 1 or resize not in ("squash", "pad") or len(mean) != 3 or len(std) != 3:
        raise ValueError(f"the preprocessing is {stated}")
    if crop not in CROPS:
        raise ValueError(f"its crop is {crop!r}, not one of {', '.join(CROPS)}")
    return Preprocessing(size, resize, (mean[0], mean[1], mean[2]), (std[0], std[1], std[2]), crop)
