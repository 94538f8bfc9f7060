"""Networks with the head that they were trained with, and their own preprocessing of test images."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timm.data import ImageNetInfo, infer_imagenet_subset
from torch import nn

from usvit.config import HeadRule, TestConfig, ViewsConfig
from usvit.data.splits import SeenImages, load_metadata, seen_by_weights
from usvit.data.transforms import Preprocessing, TestResize
from usvit.errors import UsvitError
from usvit.experiments.base import model_of_record
from usvit.models import (
    UPSTREAM,
    LoadReport,
    ModelSpec,
    Statistics,
    Weights,
    build_with_report,
    count_parameters,
    find_model,
    fold_folders,
    input_statistics,
    resolve_weights,
    timm_test_config,
)
from usvit.pretraining.distill import has_distillation_head
from usvit.pretraining.heads import head_outputs, load_head
from usvit.records import ModelMetadata, RunRecord, load_run_record
from usvit.training import seed_everything

logger = logging.getLogger(__name__)

CLASSIFYING = (None, "supervised", "fewshot", "linear", "finetune")
"""Values of ``objective`` in the metadata of networks whose head was trained; None stands for ``cv`` and ``train``."""


@dataclass(frozen=True)
class EvaluationView:
    """Conversion of a test image to the input of one classifier."""

    image_size: int
    resize: TestResize
    test_crop: float
    interpolation: str
    mean: Statistics
    std: Statistics
    origin: str
    """Where these settings come from."""
    crop: str = "tissue"
    """``Preprocessing.crop``, for the images of a data card."""

    @property
    def normalisation(self) -> Preprocessing:
        return Preprocessing(self.image_size, "squash", self.mean, self.std)

    def describe(self) -> dict[str, Any]:
        """Return the entry ``preprocessing`` of ``test.json``."""
        return {
            "image_size": self.image_size,
            "resize": self.resize,
            "test_crop": self.test_crop,
            "interpolation": self.interpolation,
            "mean": list(self.mean),
            "std": list(self.std),
            "origin": self.origin,
        }


@dataclass(frozen=True)
class FixedClassifier:
    """A network that is tested as it is."""

    name: str
    """Unique name in tables; no path."""
    spec: ModelSpec
    weights: Weights
    classes: tuple[str, ...]
    """Names of its outputs, in order."""
    classes_origin: str
    view: EvaluationView
    heads: tuple[HeadRule | None, ...]
    """Rules by which a network with a distillation token decides; (None,) for a network with one head."""
    n_parameters: int
    loaded: LoadReport

    def network(self) -> nn.Module:
        """Build the network with its weights and its head, on the CPU."""
        return _built(self.spec, self.weights, len(self.classes), self.view.image_size)[0]

    def row_name(self, head: HeadRule | None) -> str:
        """Return the name of a row of the tables: that of the classifier, with its head if it has two."""
        return self.name if head is None else f"{self.name} [{head}]"

    def trained_on(self) -> SeenImages:
        """Return the images that must not be tested: those that the weights were trained on, or chosen by.

        Validation images of a pre-training that kept its last step have chosen nothing, so they may be tested.
        """
        seen = seen_by_weights(self.weights)
        run = None if self.weights.metadata is None else _run_of(self.weights)
        return seen.of_parts("train", "upstream") if run is not None and _kept_last_step(run) else seen

    def describe(self) -> dict[str, Any]:
        """Return the entry of ``run.json``."""
        return {"name": self.name} | model_of_record(self.spec, self.n_parameters, None, self.weights, self.loaded)


def resolve_classifiers(config: TestConfig) -> list[FixedClassifier]:
    """Find and build every classifier once, before anything is written.

    Raises:
        UsvitError: One does not exist, is incomplete, or has no classifier.
    """
    found: list[FixedClassifier] = []
    for choice in config.classifiers:
        for name, spec, weights in _weights_of(choice, config):
            taken = sum(one.name == name or one.name.startswith(f"{name} (") for one in found)
            found.append(_resolved(f"{name} ({taken + 1})" if taken else name, spec, weights, config))
    if config.head != TestConfig().head and all(one.heads == (None,) for one in found):
        raise UsvitError(
            f"--head {' '.join(config.head)} chooses between the two heads of a network with a distillation token, "
            "and none of the classifiers has one. Leave it out."
        )
    return found


def _weights_of(choice: str, config: TestConfig) -> Iterator[tuple[str, ModelSpec, Weights]]:
    """Yield name, network and weights of a choice; those of each fold for a run with several folds."""
    model, _, where = ("", "", choice) if "=" not in choice or Path(choice).exists() else choice.partition("=")
    if not model and not Path(where).exists():
        model, where = choice, "hub"
    if where == "scratch":
        raise UsvitError(f"{choice} has random weights, so it has no classifier to test. Give trained weights.")
    on_disk = where != "hub" and not where.startswith("hub:")
    metadata = _metadata_of(Path(where)) if on_disk and Path(where).exists() else None
    _check_trained_head(where, metadata)
    if not model:
        if metadata is None or not metadata.architecture:
            raise UsvitError(
                f"The weights {where} have no metadata (model.json) that names their network. Name it: MODEL={where}, "
                f"or --model MODEL --weights {where}."
            )
        model = metadata.architecture
    own_parts = (metadata and metadata.vit) or {}
    try:
        spec = find_model(model, {**own_parts, **config.model.vit.model_dump(exclude_none=True)})
    except UsvitError as error:
        if model == choice:
            raise UsvitError(f"'{choice}' is no run, no folder of a fold and no file of weights. {error}") from error
        raise
    weights = resolve_weights(where, spec)
    if weights.warning:
        logger.warning(weights.warning)
    if not on_disk:
        yield f"{spec.name}={weights.source}:{weights.upstream}", spec, weights
    elif weights.folds:
        yield from ((f"{weights.name}/fold-{fold}", spec, one) for fold, one in enumerate(weights.folds))
    else:
        yield str(weights.name), spec, weights


def _metadata_of(path: Path) -> ModelMetadata | None:
    if path.is_dir():
        if (path / "run.json").is_file() and load_run_record(path).kind == "test":
            raise UsvitError(f"{path} is a run of usvit test, which holds no network. Name the classifiers it tested.")
        return load_metadata(fold_folders(path)[0] / "model.safetensors")
    return load_metadata(path)


def _check_trained_head(where: str, metadata: ModelMetadata | None) -> None:
    """Refuse networks whose head was not trained, such as those of self-supervised runs."""
    if metadata is None:
        return
    objective = metadata.objective if metadata.stage == UPSTREAM else None
    if objective not in CLASSIFYING or not metadata.classes or metadata.head == "untrained":
        what = f" (objective {objective})" if objective else ""
        raise UsvitError(
            f"{where} has no classifier: its training{what} did not train one. Train it on labels first, or measure "
            f"its features: usvit transfer --weights {where} --how knn."
        )


def _resolved(name: str, spec: ModelSpec, weights: Weights, config: TestConfig) -> FixedClassifier:
    view = _view_of(spec, weights, config)
    metadata = weights.metadata
    if metadata is not None and metadata.classes:
        classes, origin = tuple(metadata.classes), "the metadata of the weights"
    else:
        classes, origin = _imagenet_classes(spec, weights, view.image_size, name)
    model, loaded = _built(spec, weights, len(classes), view.image_size)
    heads: tuple[HeadRule | None, ...] = tuple(dict.fromkeys(config.head)) if has_distillation_head(model) else (None,)
    if weights.path is not None:  # many networks are not kept in memory
        weights = replace(weights, content=None)
    return FixedClassifier(name, spec, weights, classes, origin, view, heads, count_parameters(model), loaded)


def _imagenet_classes(spec: ModelSpec, weights: Weights, image_size: int, name: str) -> tuple[tuple[str, ...], str]:
    """Return the classes of weights without metadata: those of the variant of ImageNet that has as many."""
    with_any_head = build_with_report(spec, weights, n_classes=1000, image_size=image_size)[0]
    n_outputs = head_outputs(with_any_head, weights)
    if n_outputs is None:
        raise UsvitError(
            f"{name} has no classifier: the file of its weights has no head. Give weights that were trained on labels."
        )
    variant = infer_imagenet_subset({"num_classes": n_outputs})
    if variant is None:
        raise UsvitError(
            f"The weights {name} have {n_outputs} outputs, and no metadata (model.json) names their classes. Only the "
            "classes of ImageNet-1k (1,000) and of ImageNet-21k's releases are known without metadata."
        )
    return tuple(ImageNetInfo(variant).label_names()), f"{n_outputs:,} outputs, taken to be those of {variant}"


def _built(spec: ModelSpec, weights: Weights, n_classes: int, image_size: int) -> tuple[nn.Module, LoadReport]:
    seed_everything(0, "model", 0)  # all weights are loaded; deterministic algorithms are set
    model, loaded = build_with_report(spec, weights, n_classes=n_classes, image_size=image_size)
    load_head(model, weights, n_classes, f"The network {spec.name}", "Give the weights with their own head.")
    return model, replace(loaded, new=())


def _view_of(spec: ModelSpec, weights: Weights, config: TestConfig) -> EvaluationView:
    """Return the preprocessing of a classifier, with the changes of the configuration."""
    metadata = weights.metadata
    mean, std = input_statistics(spec, weights)
    crop = "tissue"
    if metadata is not None and metadata.preprocessing is not None:
        own = metadata.preprocessing
        size, crop, interpolation, origin = own.image_size, own.crop or crop, "bicubic", "the metadata of the run"
        resize: TestResize = "pad" if own.resize == "pad" else "squash"
        test_crop = 1.0
        if metadata.stage == UPSTREAM:
            resize, test_crop = "short_side", _crop_of_run(weights)
    else:
        size, resize, test_crop, interpolation, origin = _of_timm(spec, weights)
    views = config.views
    changed = {"image_size": config.model.image_size, **views.model_dump()}
    named = [key for key, value in changed.items() if value is not None]
    if views.test_crop is not None:
        resize, test_crop = "short_side", views.test_crop
    return EvaluationView(
        image_size=config.model.image_size or size,
        resize=resize,
        test_crop=test_crop,
        interpolation=views.interpolation or interpolation,
        mean=mean,
        std=std,
        origin=origin + (f"; changed by a setting: {', '.join(named)}" if named else ""),
        crop=crop,
    )


def _run_of(weights: Weights) -> RunRecord | None:
    """Return the ``run.json`` of the run that made the weights; None if they were copied out of it."""
    folder = None if weights.path is None else weights.path.absolute().parent.parent
    return None if folder is None or not (folder / "run.json").is_file() else load_run_record(folder)


def _kept_last_step(run: RunRecord) -> bool:
    train = run.config.as_written().get("train")
    stopping = train.get("early_stopping") if isinstance(train, dict) else None
    if run.kind != "pretrain" or not isinstance(stopping, dict):
        return False
    return stopping.get("keep") == "last" and stopping.get("patience", 0) is None


def _crop_of_run(weights: Weights) -> float:
    """Return ``views.test_crop`` of the pre-training or transfer that made the weights, or its default."""
    run = _run_of(weights)
    views = None if run is None else run.config.as_written().get("views")
    value = views.get("test_crop") if isinstance(views, dict) else None
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else ViewsConfig().test_crop


def _of_timm(spec: ModelSpec, weights: Weights) -> tuple[int, TestResize, float, str, str]:
    """Return size, resizing, crop, interpolation and origin as timm tests these weights."""
    found = timm_test_config(spec, weights)
    if found is None:
        return spec.image_size, "short_side", ViewsConfig().test_crop, "bicubic", "usvit's defaults for this network"
    modes: dict[str, TestResize] = {"center": "short_side", "squash": "squash"}
    mode, interpolation = str(found["crop_mode"] or "center"), str(found["interpolation"])
    if mode not in modes or interpolation not in ("bicubic", "bilinear"):
        raise UsvitError(
            f"timm tests the weights of {spec.name} with crop mode {mode} and interpolation {interpolation}, which "
            "usvit does not have. Set views.test_crop and views.interpolation to test them in another way."
        )
    origin = "timm's configuration of these weights"
    if weights.source != "hub":
        origin = "timm's configuration of this network's recommended weights"
    return int(found["input_size"][-1]), modes[mode], float(found["crop_pct"]), interpolation, origin


def joint_sha256_text(classifiers: list[FixedClassifier]) -> str:
    """Return a text that changes if a classifier, its weights, its classes or its preprocessing change."""
    return json.dumps([[one.name, one.weights.sha256, one.classes, one.view.describe()] for one in classifiers])
