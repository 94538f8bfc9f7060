"""A pre-training resolved and checked, before anything is written."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from usvit.config import DataConfig, PretrainConfig
from usvit.data.manifest import Manifest
from usvit.data.manifest_file import open_manifest
from usvit.data.sources.catalog import DATA
from usvit.data.sources.manifest import ManifestSource
from usvit.data.sources.open import open_training
from usvit.data.sources.source import Source
from usvit.data.splits import folds_sha256, make_folds, rows_of_part
from usvit.data.views.device import DeviceViews, resolve_on
from usvit.errors import UsvitError
from usvit.files import sha256_of_text
from usvit.job import adapt, head_of_record, in_runs, model_of_record, new_model_with_report
from usvit.models.build import count_parameters, input_statistics
from usvit.models.count import Cost
from usvit.models.mlp_head import give_mlp_head
from usvit.models.spec import ModelSpec
from usvit.models.tune import TuneReport
from usvit.models.weights import LoadReport, Weights, resolve_weights
from usvit.models.zoo import find_model
from usvit.pretrain.families import UNLABELLED, make_objective
from usvit.pretrain.heads import check_classes, load_head
from usvit.pretrain.origin import Origin
from usvit.pretrain.plan import Plan, UpstreamObjective
from usvit.progress import Progress
from usvit.train.device import Device, resolve_device

_NEW_HEAD = "For other classes a new head is trained: set model.head to new."


@dataclass(frozen=True)
class PretrainJob:
    """Everything resolved and checked, before anything is written."""

    config: PretrainConfig
    spec: ModelSpec
    weights: Weights
    device: Device
    sources: tuple[Source, ...]
    """What each fold learns from; one, but for the source ``data``."""
    validation: Source | None
    manifest: Manifest | None
    """Of the source ``data``."""
    folds: pd.DataFrame | None
    downstream: Manifest | None
    """What is to be tested later, of ``source.exclude``: neither it nor copies of it are learnt from."""
    learnt_from: tuple[Origin, ...]
    """Other networks: the teacher of a distillation, BEiT's tokenizer."""
    inputs: DeviceViews
    n_parameters: int
    cost: Cost | None
    """Of one image; None: it is not counted."""
    tuned: TuneReport
    loaded: LoadReport

    @property
    def classes(self) -> tuple[str, ...]:
        """Of the head; none where nothing is labelled, or labels are not learnt."""
        return () if self.config.objective in UNLABELLED else self.sources[0].classes

    def fold_name(self, fold: int) -> str:
        return f"fold {fold + 1}/{len(self.sources)}" if len(self.sources) > 1 else "pre-training"


def default_out(config: PretrainConfig) -> Path:
    """``runs/pretrain-fractals-vit_ti16-fractals-seed0``."""
    return in_runs("pretrain", config.source.name, config.model.name, config.recipe, f"seed{config.seed}")


def prepare(config: PretrainConfig, roots: dict[str, Path], progress: Progress) -> PretrainJob:
    """Resolve and check everything, the cheap first: a run that cannot be made stops here."""
    device = resolve_device(config.device, config.precision)
    spec = find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))
    weights = resolve_weights(config.model.weights, spec, config.model.weights_sha256)
    if weights.warning:
        progress.say(weights.warning)
    mean, std = input_statistics(spec, weights)
    inputs = DeviceViews(config.views, mean, std, on_device=resolve_on(config.views.on, device.type))
    sources, validation, manifest, folds = _sources(config, roots, progress)
    _check_labels(config, sources[0])
    _check_stopping(config, validation)
    downstream = _downstream(config, roots, manifest, progress)
    if weights.folds and len(weights.folds) != len(sources):
        raise UsvitError(
            f"--weights {config.model.weights} is a run of {len(weights.folds)} folds, and this pre-training has "
            f"{len(sources)}. Name one of its folds: {config.model.weights}/fold-0."
        )
    n_classes = 0 if config.objective in UNLABELLED else len(sources[0].classes)
    # Built once for nothing: weights that do not fit, an impossible size, a recipe for other networks show now.
    if config.model.head == "kept":
        check_classes(weights, sources[0].classes, f"The network of --weights {config.model.weights}", _NEW_HEAD)
    network, loaded, tuned = new_network(config, spec, weights, n_classes, fold=0)
    plan = Plan(config, spec, n_classes, len(sources[0]), inputs, torch.device("cpu"), sources[0].classes)
    objective = make_objective(config)(plan, network)
    return PretrainJob(
        config,
        spec,
        weights,
        device,
        sources,
        validation,
        manifest,
        folds,
        downstream,
        tuple(getattr(objective, "learnt_from", ())),
        inputs,
        count_parameters(network),
        _cost(objective, config),
        tuned,
        loaded,
    )


def _cost(objective: UpstreamObjective, config: PretrainConfig) -> Cost | None:
    """Of one image, by the objectives that can tell; not where a part alone is tuned, whose backward pass is less."""
    told = getattr(objective, "cost", None)
    return told(config.model.image_size) if told and config.model.tune == "full" else None


def new_network(
    config: PretrainConfig, spec: ModelSpec, weights: Weights, n_classes: int, fold: int
) -> tuple[nn.Module, LoadReport, TuneReport]:
    """The network that a fold begins from; the same seed and fold give the same."""
    network, loaded = new_model_with_report(config, spec, weights, n_classes, fold)
    if config.model.head == "kept":
        if weights.source == "scratch":
            raise UsvitError("model.head is kept, but --weights scratch has none. Give the weights to go on from.")
        load_head(network, weights.of_fold(fold), n_classes, f"The network {spec.name}", _NEW_HEAD)
    elif config.model.head == "mlp" and n_classes:
        give_mlp_head(network)
    return network, loaded, adapt(network, config)


def new_objective(job: PretrainJob, fold: int, n_images: int, device: torch.device) -> UpstreamObjective:
    """The objective of a fold, with a new network, on the CPU; ``n_images``: those that are learnt from."""
    network, _, _ = new_network(job.config, job.spec, job.weights, len(job.classes), fold)
    plan = Plan(job.config, job.spec, len(job.classes), n_images, job.inputs, device, job.classes)
    return make_objective(job.config)(plan, network)


def describe(job: PretrainJob, command: str) -> dict[str, Any]:
    """What ``run.json`` says of a pre-training before it begins."""
    sources = [source.describe() for source in job.sources]
    validation = None if job.validation is None else job.validation.describe()
    read: tuple[Any, ...] = (sources, validation)
    excluded = {}
    if job.downstream is not None:
        excluded = {"exclude": {"datasets": list(job.downstream.roots), "manifest_sha256": job.downstream.sha256()}}
        read = (*read, excluded["exclude"]["manifest_sha256"])
    others = [one.describe() for one in job.learnt_from]
    folds = {"n": len(job.sources)} | ({} if job.folds is None else {"sha256": folds_sha256(job.folds)})
    return {
        **head_of_record("pretrain", default_out(job.config), job.config, job.device, command),
        "data": {
            "sources": sources,
            "validation": validation,
            "classes": list(job.classes),
            **excluded,
            "sha256": sha256_of_text(str(read)),
        },
        **({"learnt_from": {"networks": others, "sha256": sha256_of_text(str(others))}} if others else {}),
        "folds": folds,
        "model": model_of_record(job.spec, job.n_parameters, job.tuned, job.weights, job.loaded),
    }


def _sources(
    config: PretrainConfig, roots: dict[str, Path], progress: Progress
) -> tuple[tuple[Source, ...], Source | None, Manifest | None, pd.DataFrame | None]:
    """What each fold learns from, what is validated on, and the data set and folds behind the source ``data``."""
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
            "source.hashes is false, and the source data is the training images of folds: without their hashes nothing "
            "could refuse to test a fold on what it has seen. They are in the manifest and cost no time: leave "
            "source.hashes true."
        )
    manifest = open_manifest(config.data, roots, progress)
    folds = make_folds("cv", manifest.usable, config.split, config.split_seed, manifest.own_ids)
    parts = tuple(
        open_training(config.source, roots, seed=config.seed, data=part)[0] for part in _training_parts(manifest, folds)
    )
    return parts, None, manifest, folds


def _training_parts(manifest: Manifest, folds: pd.DataFrame) -> Iterator[Source]:
    """The training images of each fold: those that ``usvit cv`` with the same data, seed and split settings draws."""
    for fold in range(int(folds.fold.nunique())):
        yield ManifestSource(manifest, rows_of_part(folds, manifest.usable, "train", fold))


def _downstream(
    config: PretrainConfig, roots: dict[str, Path], manifest: Manifest | None, progress: Progress
) -> Manifest | None:
    if not config.source.exclude:
        return None
    wanted = DataConfig(dataset="+".join(config.source.exclude), near_duplicates="ignore")  # who is whose copy is known
    found = open_manifest(wanted, roots, progress)
    own = set() if manifest is None else set(manifest.roots)
    if both := [name for name in found.roots if name in own]:
        raise UsvitError(
            f"source.exclude names {both[0]}, and the source data is the training images of its folds: they would all "
            "be left out. Take it out of source.exclude; each fold's test images are not learnt from as it is."
        )
    return found


def _check_stopping(config: PretrainConfig, validation: Source | None) -> None:
    """Refuse to wait for a figure that never comes: the training would stop after a few evaluations, for nothing."""
    stopping = config.train.early_stopping
    if stopping.patience is None and (stopping.keep == "last" or validation is None):
        return
    if validation is None:
        raise UsvitError(
            f"train.early_stopping.patience {stopping.patience} waits for validation figures, and there are no "
            "validation images: set source.val or source.val_share, or patience to null."
        )
    known = ["val_loss"] if config.objective in ("mae", "tokenizer") else ["val_loss", "val_accuracy"]
    if stopping.monitor not in known:
        raise UsvitError(
            f"train.early_stopping.monitor {stopping.monitor} is not measured with objective {config.objective}: set "
            f"{' or '.join(known)}."
        )


def _check_labels(config: PretrainConfig, source: Source) -> None:
    if config.objective not in UNLABELLED and not source.classes:
        raise UsvitError(
            f"objective {config.objective} learns from labels, and source.name={config.source.name} has none. "
            f"Choose another source, or one of the objectives without labels: {', '.join(UNLABELLED)}."
        )
