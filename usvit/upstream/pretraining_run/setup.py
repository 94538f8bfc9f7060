"""A pre-training resolved and checked, before anything is written."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from usvit.config import DataConfig
from usvit.data.datasets import Manifest, ManifestSource, UpstreamDataset, card_names, open_manifest
from usvit.data.splits import folds_sha256, make_folds, rows_of_split
from usvit.data.transforms import DeviceViews
from usvit.errors import UsvitError, unknown
from usvit.experiments import adapt, in_runs, learnt_from_record, model_record, new_model_with_report, new_record
from usvit.files import sha256_of_text
from usvit.models import (
    Cost,
    LoadReport,
    ModelSpec,
    TuneReport,
    UpstreamModel,
    Weights,
    build_model,
    check_classes,
    count_parameters,
    find_model,
    fix_layer_scale,
    give_mlp_head,
    input_statistics,
    load_head,
    resolve_weights,
)
from usvit.progress import Progress
from usvit.records import RunRecord
from usvit.records.run import Data, DecodedImages, Folds
from usvit.training import Device, resolve_device
from usvit.upstream.config.pretrain import PretrainConfig, SourceConfig
from usvit.upstream.pretraining.task import UNLABELLED, PretrainingTask, TaskContext, make_task
from usvit.upstream.pretraining_run.batches import views_on_device
from usvit.upstream.sources.catalog import DATA, TORCHVISION
from usvit.upstream.sources.near_duplicates import DownstreamImages
from usvit.upstream.sources.open import name_and_split, named_sets, open_source, open_training, tested_splits

logger = logging.getLogger(__name__)

_NEW_HEAD = "For other classes a new head is trained: set model.head to new."


@dataclass(frozen=True)
class PretrainingSetup:
    """Everything that the run needs, resolved and checked."""

    config: PretrainConfig
    spec: ModelSpec
    weights: Weights
    device: Device
    sources: tuple[UpstreamDataset, ...]
    """The training images of each fold; there is one fold unless the source is ``data``."""
    validation: UpstreamDataset | None
    manifest: Manifest | None
    """The manifest of the source ``data``."""
    folds: pd.DataFrame | None
    downstream: DownstreamImages | None
    """The images of ``source.exclude``, which are tested later: neither they nor near-duplicates are trained on."""
    learnt_from: tuple[UpstreamModel, ...]
    """Other networks that the training uses: the teacher of a distillation, the tokenizer of BEiT, and the network
    whose values of LayerScale are kept."""
    layer_scale: Weights | None
    """The weights whose values of LayerScale the network has and keeps (``model.layer_scale_from``)."""
    inputs: DeviceViews
    n_parameters: int
    cost: Cost | None
    """The cost of one training image; None if it is not counted."""
    tuned: TuneReport
    loaded: LoadReport

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the head; empty if the training does not use labels."""
        return () if self.config.objective in UNLABELLED else self.sources[0].classes

    def fold_name(self, fold: int) -> str:
        return f"fold {fold + 1}/{len(self.sources)}" if len(self.sources) > 1 else "pre-training"


def default_out(config: PretrainConfig) -> Path:
    """Return the default run directory: ``runs/pretrain-fractals-vit_ti16-fractals-seed0``."""
    return in_runs("pretrain", config.source.name, config.model.name, config.recipe, f"seed{config.seed}")


def prepare(config: PretrainConfig, roots: dict[str, Path], progress: Progress) -> PretrainingSetup:
    """Resolve and check everything, the cheapest checks first, so that a run that cannot succeed fails early."""
    device = resolve_device(config.device, config.precision)
    spec = find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))
    weights = resolve_weights(config.model.weights, spec, config.model.weights_sha256)
    if weights.warning:
        logger.warning(weights.warning)
    mean, std = input_statistics(spec, weights)
    inputs = DeviceViews(config.views, mean, std, on_device=views_on_device(config, device.type))
    sources, validation, manifest, folds = _sources(config, roots, progress)
    _check_labels(config, sources[0])
    _check_stopping(config, validation)
    downstream = _downstream(config, roots, manifest, progress)
    if weights.folds and len(weights.folds) != len(sources):
        raise UsvitError(
            f"--weights {config.model.weights} is a run of {len(weights.folds)} folds, and this pre-training has "
            f"{len(sources)}. Name one of its folds: {config.model.weights}/fold-0."
        )
    layer_scale = _layer_scale_weights(config, spec)
    n_classes = 0 if config.objective in UNLABELLED else len(sources[0].classes)
    # Build the model and the training task once up front, so that mismatched weights, an invalid image size or a recipe
    # for other networks fail before any output is written.
    if config.model.head == "kept":
        check_classes(weights, sources[0].classes, f"The network of --weights {config.model.weights}", _NEW_HEAD)
    network, loaded, tuned = new_network(config, spec, weights, n_classes, fold=0, layer_scale=layer_scale)
    context = TaskContext(config, spec, n_classes, len(sources[0]), inputs, torch.device("cpu"), sources[0].classes)
    task = make_task(config)(context, network)
    return PretrainingSetup(
        config,
        spec,
        weights,
        device,
        sources,
        validation,
        manifest,
        folds,
        downstream,
        (*task.upstream_models, *_origin_of_layer_scale(spec, layer_scale)),
        layer_scale,
        inputs,
        count_parameters(network),
        _cost(task, config),
        tuned,
        loaded,
    )


def _layer_scale_weights(config: PretrainConfig, spec: ModelSpec) -> Weights | None:
    """Find the weights that ``model.layer_scale_from`` names; None if it names none."""
    choice = config.model.layer_scale_from
    if choice is None:
        return None
    try:
        weights = resolve_weights(choice, spec)
    except UsvitError as error:
        raise UsvitError(f"model.layer_scale_from {choice} cannot be used. {error}") from error
    if weights.source == "scratch":
        raise UsvitError(
            "model.layer_scale_from is scratch, but random weights have no trained values: name a run, or set it to "
            "null to train LayerScale."
        )
    if weights.folds:
        raise UsvitError(
            f"model.layer_scale_from {choice} is a run of {len(weights.folds)} folds, but the values are those of one "
            f"network. Name a fold: {choice}/fold-0."
        )
    return weights


def _origin_of_layer_scale(spec: ModelSpec, weights: Weights | None) -> tuple[UpstreamModel, ...]:
    if weights is None:
        return ()
    role = "source of LayerScale"
    return (UpstreamModel(role, spec.name, weights.sha256, weights.record(), weights.metadata, weights.path),)


def _cost(task: PretrainingTask, config: PretrainConfig) -> Cost | None:
    """Return the cost of one image, or None if the task does not count it.

    A training that tunes only a part of the network is not counted either: its backward pass is shorter.
    """
    return task.cost(config.model.image_size) if config.model.tune == "full" else None


def new_network(
    config: PretrainConfig,
    spec: ModelSpec,
    weights: Weights,
    n_classes: int,
    fold: int,
    *,
    layer_scale: Weights | None = None,
) -> tuple[nn.Module, LoadReport, TuneReport]:
    """Build the network with which a fold begins; the same seed and fold give the same network.

    With ``layer_scale``, LayerScale has the values of those weights and is frozen; all else is as without.
    """
    network, loaded = new_model_with_report(config, spec, weights, n_classes, fold)
    if layer_scale is not None:
        size = config.model.image_size
        with torch.random.fork_rng(devices=[]):
            fix_layer_scale(network, build_model(spec, layer_scale, n_classes=n_classes, image_size=size))
    if config.model.head == "kept":
        if weights.source == "scratch":
            raise UsvitError("model.head is kept, but --weights scratch has no head. Pass weights to continue from.")
        load_head(network, weights.of_fold(fold), n_classes, f"The network {spec.name}", _NEW_HEAD)
    elif config.model.head == "mlp" and n_classes:
        give_mlp_head(network)
    return network, loaded, adapt(network, config)


def new_task(setup: PretrainingSetup, fold: int, n_images: int, device: torch.device) -> PretrainingTask:
    """Build the training task of a fold with a new network on the CPU.

    Args:
        setup: The resolved run.
        fold: Number of the fold, from 0.
        n_images: Number of training images.
        device: The device of the training.
    """
    network, _, _ = new_network(
        setup.config, setup.spec, setup.weights, len(setup.classes), fold, layer_scale=setup.layer_scale
    )
    context = TaskContext(setup.config, setup.spec, len(setup.classes), n_images, setup.inputs, device, setup.classes)
    return make_task(setup.config)(context, network)


def run_record(setup: PretrainingSetup, command: str) -> RunRecord:
    """Return the content of ``run.json`` before the training begins."""
    sources = [source.record() for source in setup.sources]
    validation = None if setup.validation is None else setup.validation.record()
    excluded = None if setup.downstream is None else setup.downstream.record()
    read: tuple[object, ...] = ([one.content() for one in sources], validation and validation.content())
    if excluded is not None:
        read = (*read, excluded.content())
    data = Data(
        sources=sources,
        validation=validation,
        classes=list(setup.classes),
        exclude=excluded,
        decoded=None if setup.config.decoded_size is None else DecodedImages(longest_side=setup.config.decoded_size),
        sha256=sha256_of_text(str(read)),
    )
    folds = Folds(n=len(setup.sources), sha256=None if setup.folds is None else folds_sha256(setup.folds))
    return new_record(
        "pretrain",
        default_out(setup.config),
        setup.config,
        setup.device,
        command,
        data,
        learnt_from=learnt_from_record(setup.learnt_from),
        folds=folds,
        model=model_record(setup.spec, setup.n_parameters, setup.tuned, setup.weights, setup.loaded),
    )


def _sources(
    config: PretrainConfig, roots: dict[str, Path], progress: Progress
) -> tuple[tuple[UpstreamDataset, ...], UpstreamDataset | None, Manifest | None, pd.DataFrame | None]:
    """Return the training images of each fold, the validation images, and the manifest and folds of source ``data``."""
    if DATA not in config.source.name.split("+"):
        training, validation = open_training(config.source, roots, seed=config.seed)
        return (training,), validation, None, None
    if config.source.val or config.source.val_share:
        raise UsvitError(
            "The source data is the training images of folds, without labels: there is nothing to validate on. "
            "Set source.val to null and source.val_share to 0."
        )
    if not config.source.hashes:
        raise UsvitError(
            "source.hashes is false, and the source data is the training images of folds: without their hashes, usvit "
            "cannot refuse to test a fold on images that it was trained on. The hashes are in the manifest and take "
            "no time: leave source.hashes true."
        )
    manifest = open_manifest(config.data, roots, progress)
    folds = make_folds("cv", manifest.usable, config.split, config.split_seed, manifest.own_ids)
    of_folds = _training_images(manifest, folds)
    sources = tuple(open_training(config.source, roots, seed=config.seed, data=images)[0] for images in of_folds)
    return sources, None, manifest, folds


def _training_images(manifest: Manifest, folds: pd.DataFrame) -> Iterator[UpstreamDataset]:
    """Yield the training images of each fold: those of ``usvit cv`` with the same data, seed and split settings."""
    for fold in range(int(folds.fold.nunique())):
        yield ManifestSource(manifest, rows_of_split(folds, manifest.usable, "train", fold))


def _downstream(
    config: PretrainConfig, roots: dict[str, Path], manifest: Manifest | None, progress: Progress
) -> DownstreamImages | None:
    """Open the images of ``source.exclude``: data cards, and the tested splits of sets that upstream sources name."""
    if not config.source.exclude:
        return None
    cards, sets = [], {}
    for choice in config.source.exclude:
        name, split = name_and_split(choice)
        if name not in named_sets() and not name.startswith(TORCHVISION):
            cards.append(choice)
            continue
        for one in (split,) if split is not None else tested_splits(name):
            sets[f"{name}:{one}"] = open_source(SourceConfig(name=name), roots, split=one, seed=config.seed)
    found = None
    if cards:
        _check_cards(cards)
        found = open_manifest(DataConfig(dataset="+".join(cards), near_duplicates="ignore"), roots, progress)
    own = set() if manifest is None else set(manifest.roots)
    if both := [name for name in (found.roots if found else ()) if name in own]:
        raise UsvitError(
            f"source.exclude names {both[0]}, and the source data is the training images of its folds: all would be "
            "left out. Remove it from source.exclude; the test images of each fold are never trained on."
        )
    return DownstreamImages(found, sets)


def _check_cards(names: list[str]) -> None:
    for name in names:
        if name not in card_names() and not Path(name).is_file():
            raise unknown(
                "data set in source.exclude",
                name,
                [*card_names(), *named_sets()],
                "It takes data cards ('usvit data list'), and sets of 'usvit pretrain --list-sources', with a split or "
                "without: cifar10, imagenet:val.",
            )


def _check_stopping(config: PretrainConfig, validation: UpstreamDataset | None) -> None:
    """Refuse early stopping on a figure that is never measured: it would end the training after a few evaluations."""
    stopping = config.train.early_stopping
    if stopping.patience is None and (stopping.keep == "last" or validation is None):
        return
    if validation is None:
        raise UsvitError(
            f"train.early_stopping.patience {stopping.patience} waits for validation figures, and there are no "
            "validation images: set source.val or source.val_share, or patience to null."
        )
    regression = config.objective == "masked_patch" and config.masked_patch.target == "pixels"
    losses_only = regression or config.objective in ("mae", "tokenizer", "dino")
    known = ["val_loss"] if losses_only else ["val_loss", "val_accuracy"]
    if stopping.monitor not in known:
        raise UsvitError(
            f"train.early_stopping.monitor {stopping.monitor} is not measured with objective {config.objective}: set "
            f"{' or '.join(known)}."
        )


def _check_labels(config: PretrainConfig, source: UpstreamDataset) -> None:
    if config.objective not in UNLABELLED and not source.classes:
        raise UsvitError(
            f"objective {config.objective} learns from labels, and source.name={config.source.name} has none. "
            f"Choose another source, or one of the objectives without labels: {', '.join(UNLABELLED)}."
        )
