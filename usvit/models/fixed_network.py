"""Networks that are used as they are: a run, a fold of one, ``MODEL``, or ``MODEL=WEIGHTS``, with their own head."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from timm.data import ImageNetInfo, infer_imagenet_subset
from torch import nn

from usvit.data.splits import load_metadata
from usvit.errors import UsvitError
from usvit.models.build import build_with_report, count_parameters
from usvit.models.evaluation_view import EvaluationView, Interpolation, view_of
from usvit.models.heads import has_distillation_head, head_outputs, load_head
from usvit.models.spec import ModelSpec
from usvit.models.trained_model import UPSTREAM
from usvit.models.weights import LoadReport, Weights, fold_folders, resolve_weights
from usvit.models.zoo import find_model
from usvit.records import ModelMetadata, load_run_record

logger = logging.getLogger(__name__)

_CLASSIFYING = (None, "supervised", "fewshot", "linear", "finetune")
"""Values of ``objective`` in the metadata of networks whose head was trained; None stands for ``cv`` and ``train``."""


@dataclass(frozen=True)
class FixedNetwork:
    """A network with its weights, classes and preprocessing, none of which is changed."""

    name: str
    """Name in tables; no path."""
    spec: ModelSpec
    weights: Weights
    classes: tuple[str, ...]
    """Names of its outputs, in order; empty for a network without a classifier."""
    classes_origin: str
    """Where the names come from; without a classifier: why there is none."""
    view: EvaluationView
    n_parameters: int
    loaded: LoadReport
    distilled: bool
    """It has two classifiers: the class token's and the distillation token's."""

    def network(self) -> nn.Module:
        """Build the network with its weights and, if it has classes, its head, on the CPU, in training mode.

        The state of torch's global random generator does not change.
        """
        return _built(self.spec, self.weights, len(self.classes), self.view.image_size)[0]


def resolve_networks(
    choice: str,
    *,
    vit: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    test_crop: float | None = None,
    interpolation: Interpolation | None = None,
    need_classifier: bool = True,
) -> Iterator[FixedNetwork]:
    """Yield the network that a choice names, built once to check it; for a run with several folds, that of each fold.

    Args:
        choice: A run of usvit, the folder of a fold, ``MODEL`` (the hub's recommended weights), or ``MODEL=WEIGHTS``
            with the weights ``hub``, ``hub:UPSTREAM`` or a file. Metadata of weights can stand for ``MODEL=``.
        vit: Parts of the shape of a ViT whose weights have no metadata (``model.vit``).
        image_size, test_crop, interpolation: See ``view_of``.
        need_classifier: Refuse a network whose head was not trained on labels, or whose outputs have no known names.
            If False, such a network has no classes.

    Raises:
        UsvitError: There is no such network, its weights cannot be read or belong to another network, or it has no
            classifier.
    """
    for name, spec, weights in _weights_of(choice, vit or {}, need_classifier):
        view = view_of(spec, weights, image_size=image_size, test_crop=test_crop, interpolation=interpolation)
        try:
            _check_trained_head(name, weights.metadata)
            classes, origin = _classes(spec, weights, view.image_size, name)
        except UsvitError as error:
            if need_classifier:
                raise
            classes, origin = (), str(error)
        model, loaded = _built(spec, weights, len(classes), view.image_size)
        if weights.path is not None:  # many networks are not kept in memory
            weights = replace(weights, content=None)
        n_parameters, distilled = count_parameters(model), has_distillation_head(model)
        yield FixedNetwork(name, spec, weights, classes, origin, view, n_parameters, loaded, distilled)


def _weights_of(choice: str, vit: Mapping[str, Any], need_classifier: bool) -> Iterator[tuple[str, ModelSpec, Weights]]:
    """Yield name, network and weights of a choice; those of each fold for a run with several folds."""
    model, _, where = ("", "", choice) if "=" not in choice or Path(choice).exists() else choice.partition("=")
    if not model and not Path(where).exists():
        model, where = choice, "hub"
    if where == "scratch":
        raise UsvitError(f"{choice} has random weights, so it has no classifier of its own. Give trained weights.")
    on_disk = where.partition(":")[0] not in ("hub", "package")
    metadata = _metadata_of(Path(where)) if on_disk and Path(where).exists() else None
    if need_classifier:
        _check_trained_head(where, metadata)
    if not model:
        if metadata is None:
            raise UsvitError(
                f"The weights {where} have no metadata (model.json) that names their network. Name it: MODEL={where}, "
                f"or --model MODEL --weights {where}."
            )
        model = metadata.architecture
    own_parts = metadata.vit if metadata else {}
    try:
        spec = find_model(model, {**own_parts, **vit}, metadata.features if metadata else None)
    except UsvitError as error:
        if model == choice:
            raise UsvitError(f"'{choice}' is not a run, the folder of a fold, or a file of weights. {error}") from error
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
    if objective not in _CLASSIFYING or not metadata.classes or metadata.head == "untrained":
        what = f" (objective {objective})" if objective else ""
        raise UsvitError(
            f"{where} has no classifier: its training{what} did not train one. Train it on labels first, or measure "
            f"its features: usvit transfer --weights {where} --how knn."
        )


def _classes(spec: ModelSpec, weights: Weights, image_size: int, name: str) -> tuple[tuple[str, ...], str]:
    """Return the classes in the metadata of weights; without metadata, those of the ImageNet that has as many."""
    if weights.metadata is not None and weights.metadata.classes:
        return tuple(weights.metadata.classes), "the metadata of the weights"
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
    with torch.random.fork_rng(devices=[]):  # all weights are loaded
        model, loaded = build_with_report(spec, weights, n_classes=n_classes, image_size=image_size)
    if n_classes:
        load_head(model, weights, n_classes, f"The network {spec.name}", "Give the weights with their own head.")
    return model, replace(loaded, new=())
