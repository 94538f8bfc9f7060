"""A cross-validation or a hold-out, resolved and checked before anything is written."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import nn

import usvit.evaluation as evaluation
from usvit.config import DataConfig, RunConfig, load_recipe
from usvit.config.evaluation import UnitSettings
from usvit.config.own_table import COLUMN_OPTIONS
from usvit.config.sections import DistillConfig
from usvit.data.datasets import Manifest, open_manifest, same_images
from usvit.data.splits import (
    check_shots,
    contamination_warning,
    described_among,
    folds_sha256,
    leaking_groups,
    make_folds,
    n_repeats,
    names_with_same_images,
    refuse_contaminated,
    refuse_seen,
    repeat_of,
    rows_of_split,
    seen_by_weights,
    together,
    unrecorded,
)
from usvit.data.transforms import Preprocessing
from usvit.data.unit_numbers import unit_codes
from usvit.errors import LeakageError, UsvitError
from usvit.experiments.base import adapt, in_runs, learnt_from_record, model_record, new_model_with_report, new_record
from usvit.experiments.fold_schedule import LEAST_IMAGES, best_at_once, most_at_once
from usvit.models import (
    HubUnavailable,
    LoadReport,
    ModelSpec,
    TuneReport,
    UpstreamModel,
    Weights,
    count_parameters,
    find_model,
    fold_folders,
    has_distillation_head,
    input_statistics,
    load_trained,
    resolve_weights,
    weight_sources,
)
from usvit.progress import Progress
from usvit.records import ContaminationRecord, Record, RunRecord
from usvit.records.run import Data, ExcludedImage, Folds
from usvit.training import Device, resolve_device

logger = logging.getLogger(__name__)

Kind = Literal["cv", "train"]


@dataclass(frozen=True)
class CrossValidationSetup:
    """Everything that the run needs, resolved and checked."""

    kind: Kind
    config: RunConfig
    spec: ModelSpec
    weights: Weights
    device: Device
    manifest: Manifest
    folds: pd.DataFrame
    preprocessing: Preprocessing
    n_parameters: int
    tuned: TuneReport
    loaded: LoadReport
    contamination: tuple[ContaminationRecord, ...] = ()
    """Tested data sets that a foundation model behind the weights was pre-trained on, which the user allowed."""
    teachers: tuple[UpstreamModel, ...] = ()
    """The teacher of all folds, or that of each fold; empty without distillation."""
    built: dict[tuple[int, int], nn.Module] = field(default_factory=dict, repr=False, compare=False)
    """(fold, threads of PyTorch) -> network that ``prepare`` built in order to check it; ``network`` hands it out."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "built": {}}  # other processes build their own

    def network(self, fold: int) -> nn.Module:
        """Return the adapted network with which a fold begins; the same seed and fold give the same network."""
        model = self.built.pop((fold, torch.get_num_threads()), None)
        if model is None:
            model, _ = new_model_with_report(self.config, self.spec, self.weights, len(self.classes), fold)
            adapt(model, self.config)
        return model

    def teacher_of(self, fold: int) -> tuple[UpstreamModel, ...]:
        """Return the teacher of a fold; empty without distillation."""
        return self.teachers[fold % len(self.teachers) :][:1] if self.teachers else ()

    @property
    def units(self) -> UnitSettings:
        """What a row of the figures is: the unit that was set, else that of the labels, if the folds keep it whole."""
        return self.config.units.at(None if self.config.split.unit == "image" else self.manifest.label_level)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.manifest.classes

    @property
    def n_folds(self) -> int:
        return int(self.folds.fold.nunique())

    @property
    def n_repeats(self) -> int:
        return n_repeats(self.folds)

    @property
    def inference_batch(self) -> int:
        """Images in a forward pass without gradients."""
        return self.config.train.micro_batch or self.config.train.batch_size

    def fold_name(self, fold: int) -> str:
        """Name of a fold in messages, counted from one."""
        if self.kind == "train":
            return "training"
        repeat = f" (repeat {repeat_of(self.folds, fold) + 1}/{self.n_repeats})" if self.n_repeats > 1 else ""
        return f"fold {fold + 1}/{self.n_folds}{repeat}"


def default_out(kind: Kind, config: RunConfig) -> Path:
    """Return the default run directory: ``runs/busi-vit_b32-gheflati2022_vit-seed0``.

    A hold-out adds ``-train`` to the name, and a split by image, which leaks, adds ``-by-image``.
    """
    datasets = "+".join(Path(name).stem for name in config.data.dataset.split("+"))
    return in_runs(
        datasets,
        config.model.name,
        config.recipe,
        f"seed{config.seed}",
        "train" if kind == "train" else "",
        config.split.scheme if config.split.scheme in ("by_dataset", "by_device") else "",
        "by-image" if config.split.unit == "image" else "",
        f"repeats{config.split.repeats}" if config.split.repeats > 1 else "",
        f"shots{config.shots}" if config.shots is not None else "",
    )


def recipe_without_hub() -> str:
    """Return the best recipe that this machine can run without a hub: its packages are installed, or it needs none."""
    networks = load_recipe("usvit_imagenet")["model"]["name"].split("+")
    sources = [{one.choice: one.here for one in weight_sources(find_model(name))} for name in networks]
    return "usvit_imagenet" if all(one.get("package") for one in sources) else "usvit_small"


def prepare(
    kind: Kind, config: RunConfig, roots: dict[str, Path], progress: Progress, *, labelled: bool = True
) -> CrossValidationSetup:
    """Resolve and check everything, the cheapest checks first, so that a run that cannot succeed fails early.

    ``labelled=False``: the images may be of a single class, because a segmentation uses the folds.
    """
    device = resolve_device(config.device, config.precision)
    vit = config.model.vit.model_dump(exclude_none=True)
    spec = find_model(config.model.name, vit, config.model.frozen_features)
    try:
        weights = resolve_weights(config.model.weights, spec, config.model.weights_sha256)
    except HubUnavailable as error:
        raise UsvitError(
            f"{error} A recipe that needs no hub takes the same images: "
            f"usvit {kind} {_images_in_options(config.data, roots)} --recipe {recipe_without_hub()}"
        ) from error
    if weights.warning:
        logger.warning(weights.warning)
    mean, std = input_statistics(spec, weights)
    preprocessing = Preprocessing(config.model.image_size, config.input.resize, mean, std, config.input.crop)
    manifest = open_manifest(config.data, roots, progress)
    rows = manifest.usable
    if config.learns_masks and not rows.mask_path.notna().any():
        name, value = "loss.mask_weight", config.loss.mask_weight
        if not value:
            name, value = "model.lesion_steps", config.model.lesion_steps
        raise UsvitError(
            f"{name} is {value:g}, but no image of {config.data.dataset} has a lesion "
            f"mask. Set {name} to 0, or add a data set with masks (usvit data info NAME)."
        )
    unit_codes(rows, config.loss.vote)  # an error before the weights are read
    if not config.units.of_images:
        evaluation.refuse_missing_units(rows, config.units, manifest.classes, manifest.positive_class)
    if config.split.unit == "image" and not config.units.of_images:
        raise UsvitError(
            f"--unit {config.units.unit} needs folds that keep a {config.units.unit} whole, and --split-by image does "
            "not. Leave out one of the two."
        )
    folds = make_folds(kind, rows, config.split, config.split_seed, manifest.own_ids, labelled=labelled)
    if config.shots is not None:
        target = np.array([manifest.classes.index(label) for label in rows.label])
        for fold in range(int(folds.fold.nunique())):
            train = target[rows_of_split(folds, rows, "train", fold)]
            check_shots(train, manifest.classes, config.shots, "split.val_fraction")
    who = f"The network of --weights {config.model.weights}"
    seen = together(seen_by_weights(weights.of_fold(fold)) for fold in range(max(1, len(weights.folds))))
    in_test = [rows_of_split(folds, rows, "test", fold) for fold in range(int(folds.fold.nunique()))]
    datasets = rows.dataset.iloc[np.concatenate(in_test)]
    tested = names_with_same_images(datasets, same_images(config.data.dataset))
    contamination = refuse_contaminated(tested, {who: seen.collections}, allow=config.allow_contaminated)
    if warning := contamination_warning(contamination):
        logger.warning(warning)
    _refuse_tests_on_seen(weights.folds or (weights,), manifest, folds, "--weights", config.model.weights)
    if doubt := unrecorded(seen, who):
        logger.warning(doubt)
    # Build the model once up front, so that mismatched weights or an invalid image size fail before any output.
    model, loaded = new_model_with_report(config, spec, weights, len(manifest.classes), fold=0)
    tuned = adapt(model, config)
    teachers = _teachers(config.distill, manifest, folds)
    if config.distill.kind == "token" and not has_distillation_head(model):
        raise UsvitError(
            f"The model {spec.name} has no distillation token with its own head, which distill.kind=token trains. "
            "Choose a model that has one, such as deit_ti_distilled, or set distill.kind=hard, which needs none."
        )
    return CrossValidationSetup(
        kind,
        config,
        spec,
        weights,
        device,
        manifest,
        folds,
        preprocessing,
        count_parameters(model),
        tuned,
        loaded,
        contamination,
        teachers,
        {(0, torch.get_num_threads()): model},
    )


def _images_in_options(data: DataConfig, roots: Mapping[str, Path]) -> str:
    """Return the options that name the images of a run."""
    options: list[tuple[str, str | None]]
    options = [("--manifest", data.manifest)] if data.manifest else [("--dataset", data.dataset)]
    options += [("--data-root", f"{name}={root}" if name else str(root)) for name, root in roots.items()]
    options += [("--table", data.table), ("--positive", data.positive), ("--keep-list", data.keep_list)]
    options += [(COLUMN_OPTIONS[name], column) for name, column in data.columns.items() if name in COLUMN_OPTIONS]
    return shlex.join(word for name, value in options if value is not None for word in (name, str(value)))


def planned_threads(job: CrossValidationSetup) -> int:
    """Return the number of threads of PyTorch with which each fold is trained (``fold_schedule``)."""
    cores, at_once = torch.get_num_threads(), job.config.folds_at_once
    if at_once is None:
        train, rows = job.config.train, job.manifest.usable
        n_images: float = (train.steps or 0) * train.batch_size
        n_images += (train.epochs or 0) * len(rows_of_split(job.folds, rows, "train", 0))
        # With a frozen network, its features are computed once for all folds.
        alone = job.device.type != "cpu" or job.config.model.tune == "head" or n_images < LEAST_IMAGES
        at_once = 1 if alone else best_at_once(job.n_folds, cores, most_at_once(job.n_parameters))
    return max(1, cores // min(at_once, job.n_folds))


def folds_at_once(job: CrossValidationSetup, threads: int) -> int:
    """Return how many folds are trained at the same time, with a number of threads each."""
    if job.config.folds_at_once is not None:
        return job.config.folds_at_once
    if job.device.type != "cpu":
        return 1
    return max(1, min(torch.get_num_threads() // threads, most_at_once(job.n_parameters)))


def _teachers(distill: DistillConfig, manifest: Manifest, folds: pd.DataFrame) -> tuple[UpstreamModel, ...]:
    """Find the networks of ``distill.weights``: one for all folds, or one for each."""
    if distill.weights is None:
        return ()
    teachers = []
    for folder in fold_folders(Path(distill.weights)):
        trained = load_trained(folder)
        if trained.classes != manifest.classes:
            raise UsvitError(
                f"The teacher of distill.weights {distill.weights} has the classes {', '.join(trained.classes)}, and "
                f"this run has {', '.join(manifest.classes)}. Choose a run with the same data.classes."
            )
        metadata, file = trained.metadata, folder / "model.safetensors"
        teachers.append(
            UpstreamModel("teacher", trained.spec.name, metadata.weights_sha256, metadata.upstream, metadata, file)
        )
    _refuse_tests_on_seen(teachers, manifest, folds, "distill.weights", distill.weights)
    return tuple(teachers)


def _refuse_tests_on_seen(
    networks: Sequence[Weights | UpstreamModel], manifest: Manifest, folds: pd.DataFrame, option: str, choice: str
) -> None:
    """Refuse networks of a run with other folds, and networks that have seen the test images of their fold.

    Args:
        networks: The initial weights, or the teacher, of all folds or of each.
        manifest, folds: The images of the run.
        option, choice: How the user named them.
    """
    n_folds, rows = int(folds.fold.nunique()), manifest.usable
    if len(networks) not in (1, n_folds):
        raise UsvitError(
            f"{option} {choice} is a run of {len(networks)} folds, and this run has {n_folds}; fold k takes its "
            f"fold k. Pass --set split.folds={len(networks)}, or name a fold: {choice}/fold-0."
        )
    for fold in range(n_folds):
        network = networks[fold % len(networks)]
        if network.metadata is None:
            continue
        tested = rows.iloc[rows_of_split(folds, rows, "test", fold)]
        seen = seen_by_weights(network)
        copies = seen.copies_among(described_among(manifest.descriptions, tested.sha256)[0])
        try:
            refuse_seen(tested, seen, f"The network of {option} {choice}", copies=copies)
        except LeakageError as error:
            if len(networks) == 1:
                raise
            same = f"To continue from a run, use its own folds: --folds {choice}/folds.csv."
            raise LeakageError(f"Fold {fold + 1}: {error} {same}") from error


def run_record(job: CrossValidationSetup, command: str) -> RunRecord:
    """Return the content of ``run.json`` before the training begins."""
    data, sections = run_sections(job)
    out = default_out(job.kind, job.config)
    return new_record(job.kind, out, job.config, job.device, command, data, **sections)


def run_sections(job: CrossValidationSetup) -> tuple[Data, dict[str, Record | None]]:
    """Return the images, and the entries for folds, network and teachers, of ``run.json``."""
    rows = job.manifest.usable
    kinds = rows.group_id.str.partition(":")[0].value_counts()
    data = Data(
        datasets=list(job.manifest.roots),
        classes=list(job.classes),
        positive_class=job.manifest.positive_class,
        n_images=len(rows),
        n_groups=int(rows.group_id.nunique()),
        class_counts={label: int((rows.label == label).sum()) for label in job.classes},
        label_level=None if job.manifest.label_level == "image" else job.manifest.label_level,
        grouping={kind: int(kinds.get(kind, 0)) for kind in ("patient", "copies", "image")},
        manifest_sha256=job.manifest.sha256(),
        excluded=[
            ExcludedImage(dataset=row.dataset, image_id=row.image_id, reason=row.exclude_reason)
            for _, row in job.manifest.excluded.iterrows()
        ],
        skipped=job.manifest.skipped_files,
        contamination=list(job.contamination) or None,
    )
    folds = Folds(
        n=job.n_folds,
        threads=planned_threads(job),
        repeats=job.n_repeats,
        sha256=folds_sha256(job.folds),
        scheme="file" if job.config.split.file else job.config.split.scheme,
        unit=job.config.split.unit,
        leaking_groups=len(leaking_groups(job.folds, rows)),
    )
    model = model_record(job.spec, job.n_parameters, job.tuned, job.weights, job.loaded)
    return data, {"folds": folds, "model": model, "learnt_from": learnt_from_record(job.teachers)}
