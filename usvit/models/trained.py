"""A network that usvit trained, whole again: from ``model.safetensors`` and its passport ``model.json``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from usvit.config import ViTConfig
from usvit.data.preprocessing import CROPS, Preprocessing
from usvit.data.seen import passport_beside
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.build import build_model, count_parameters
from usvit.models.spec import ModelSpec
from usvit.models.weights import Weights, read_state_dict, refuse_endless
from usvit.models.weights.runs import only_fold
from usvit.models.zoo import find_model

UPSTREAM = "pretrain"
"""``stage`` of a passport: first weights for a training, and no classifier of ultrasound images."""


@dataclass(frozen=True)
class TrainedModel:
    """A trained network with all that is needed to use it."""

    model: nn.Module = field(repr=False)
    """(B, 3, S, S) float -> (B, K) logits, in evaluation mode."""
    spec: ModelSpec
    passport: dict[str, Any] = field(repr=False)
    """``model.json``."""
    preprocessing: Preprocessing

    @property
    def classes(self) -> tuple[str, ...]:
        """In the order of the logits."""
        return tuple(self.passport["classes"])

    @property
    def positive(self) -> str:
        return str(self.passport["positive_class"])

    @property
    def temperature(self) -> float | None:
        """What logits are divided by before the softmax, above 0; None where none was fitted (schema 1.0: never)."""
        stated = self.passport.get("temperature")
        return None if stated is None else float(stated)

    @property
    def thresholds(self) -> dict[str, dict[str, Any]]:
        """Rule (``sensitivity >= 0.9``) -> its entry in the passport; none in schema 1.0."""
        return {entry["rule"]: entry for entry in self.passport.get("thresholds") or []}


def load_trained(folder: Path) -> TrainedModel:
    """Load the network of one fold, with its head, onto the CPU, in evaluation mode.

    The global random generator of torch is left as it was.

    Args:
        folder: of a fold (``runs/x/fold-0``), or of a finished run with a single one (``usvit train``).

    Raises:
        UsvitError: it is neither; or its passport or its weights are missing, damaged, or do not belong together.
    """
    fold = only_fold(folder)
    file, where = fold / "model.safetensors", fold / "model.json"
    passport = passport_beside(file)
    if passport is None:
        raise UsvitError(f"{fold} has no model.json, the passport of its network. Copy it beside {file.name}.")
    spec, preprocessing = _described(passport, where)
    stated = passport.get("weights_sha256")
    refuse_endless(file)
    if stated is not None and stated != sha256_of_file(file):
        raise UsvitError(
            f"The weights {file} are not those that {where} describes: their SHA-256 is another. "
            "Copy both from the same fold."
        )
    state = read_state_dict(file)
    _refuse_larger(
        spec, len(passport["classes"]), preprocessing.image_size, state, f"{file} are not those of {spec.name}"
    )
    with torch.random.fork_rng(devices=[]):
        model = build_model(
            spec,
            Weights("scratch"),
            n_classes=len(passport["classes"]),
            image_size=preprocessing.image_size,
        )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(
            f"The weights {file} are not those of {spec.name} with {len(passport['classes'])} classes, which {where} "
            f"describes. Copy both from the same fold. ({reason})"
        ) from error
    return TrainedModel(model.eval(), spec, passport, preprocessing)


def _refuse_larger(
    spec: ModelSpec, n_classes: int, image_size: int, state: Mapping[str, torch.Tensor], what: str
) -> None:
    """Refuse a network that has more parameters than its weights file, before memory is taken for it.

    Args:
        spec, n_classes, image_size: the network.
        state: the content of the weights file.
        what: the file and the network, for the error.
    """
    held = sum(tensor.numel() for tensor in state.values())
    blocks, width = (0, 0) if spec.shape is None else (spec.shape.depth * spec.shape.branches, spec.shape.width)
    # A block of a ViT has several tensors, and more than width x width numbers: no need to build millions of them.
    if blocks <= len(state) and blocks * width**2 <= held:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = build_model(spec, Weights("scratch"), n_classes=n_classes, image_size=image_size)
        if count_parameters(model) <= held:
            return
    raise UsvitError(f"The weights {what}: the file holds {held:,} numbers, too few. Copy both from the same fold.")


def _described(passport: dict[str, Any], where: Path) -> tuple[ModelSpec, Preprocessing]:
    """What a passport says of the network and its input, checked."""
    missing = [
        key
        for key in ("schema_version", "architecture", "classes", "positive_class", "preprocessing", "seen_sha256")
        if key not in passport
    ]
    if missing:
        raise UsvitError(f"{where} is no passport of usvit: it has no {', '.join(missing)}. Copy the fold's own again.")
    if passport.get("stage") == UPSTREAM:
        raise UsvitError(
            f"{where} is of a network that 'usvit pretrain' or 'usvit transfer' made: it is no classifier of "
            "ultrasound images yet. "
            f"Fine-tune it first: usvit cv --weights {where.parent}."
        )
    if str(passport["schema_version"]).partition(".")[0] != "1":
        raise UsvitError(
            f"{where} has the schema version {passport['schema_version']}, and this usvit reads 1.x. Update usvit."
        )
    try:
        classes = passport["classes"]
        if not isinstance(classes, list) or len(classes) < 2 or len(set(map(str, classes))) < len(classes):
            raise ValueError(f"classes are {classes!r}, not two or more different names")
        if passport["positive_class"] not in classes:
            raise ValueError(f"the positive class {passport['positive_class']!r} is not among the classes {classes}")
        preprocessing = _preprocessing(passport["preprocessing"])
        _check_calibration(passport)
        vit = ViTConfig(**passport.get("vit", {})).model_dump(exclude_none=True)
        return find_model(str(passport["architecture"]), vit), preprocessing
    except UsvitError as error:
        raise UsvitError(f"{where}: {error}") from error
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The passport {where} is damaged: {reason}. Copy the fold's own again.") from error


def _check_calibration(passport: dict[str, Any]) -> None:
    """ValueError unless temperature and thresholds are what schema 1.1 has there; 1.0 has them empty."""
    temperature, thresholds = passport.get("temperature"), passport.get("thresholds")
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
