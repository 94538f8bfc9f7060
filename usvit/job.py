"""A job: everything that a run needs, resolved and checked before anything is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from torch import nn

from usvit.config import RunConfig, Training, identity
from usvit.data.manifest import Manifest
from usvit.data.manifest_file import open_manifest
from usvit.data.preprocessing import Preprocessing
from usvit.data.seen import refuse_seen, seen_by_weights, together, unrecorded
from usvit.data.seen_copies import described_among
from usvit.data.splits import folds_sha256, leaking_groups, make_folds, n_repeats, repeat_of, rows_of_part
from usvit.errors import LeakageError, UsvitError
from usvit.files import sha256_of_text
from usvit.metrics.clustered_wilson import ShareSums, rate_record
from usvit.metrics.recalibration import NoFit, Temperature, fit_temperature
from usvit.metrics.thresholds import RULES, Choice, choose_threshold
from usvit.models.build import build_with_report, count_parameters, input_statistics, start_off_zero
from usvit.models.novelty import Novelty, Observed
from usvit.models.spec import ModelSpec
from usvit.models.tune import TuneReport, checkpoint_gradients, set_trainable
from usvit.models.weights import LoadReport, Weights, resolve_weights
from usvit.models.zoo import find_model
from usvit.progress import Progress
from usvit.train.device import Device, resolve_device, seed_everything
from usvit.train.loop import FitResult
from usvit.train.optim import check_layers

Kind = Literal["cv", "train"]
PASSPORT_SCHEMA = "1.2"


@dataclass(frozen=True)
class Job:
    """Everything resolved and checked, before anything is written."""

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

    @property
    def classes(self) -> tuple[str, ...]:
        return self.manifest.classes

    @property
    def n_folds(self) -> int:
        return int(self.folds.fold.nunique())

    @property
    def n_repeats(self) -> int:
        return n_repeats(self.folds)

    def fold_name(self, fold: int) -> str:
        """What progress calls a fold, counted from one."""
        if self.kind == "train":
            return "training"
        repeat = f" (repeat {repeat_of(self.folds, fold) + 1}/{self.n_repeats})" if self.n_repeats > 1 else ""
        return f"fold {fold + 1}/{self.n_folds}{repeat}"


def default_out(kind: Kind, config: RunConfig) -> Path:
    """``runs/busi-vit_b32-gheflati2022_vit-seed0``, with ``-train`` for a hold-out; a leaking split says so."""
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
    )


def in_runs(*parts: str) -> Path:
    """``runs/busi-timm-resnet50-none-seed0``: of ``timm:resnet50``; parts that are empty are left out."""
    return Path("runs") / "-".join(filter(None, parts)).replace(":", "-").replace("/", "-")


def prepare(kind: Kind, config: RunConfig, roots: dict[str, Path], progress: Progress) -> Job:
    """Resolve and check everything, the cheap first: a run that cannot be made stops here."""
    device = resolve_device(config.device, config.precision)
    spec = find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))
    weights = resolve_weights(config.model.weights, spec, config.model.weights_sha256)
    if weights.warning:
        progress.say(weights.warning)
    mean, std = input_statistics(spec, weights)
    preprocessing = Preprocessing(config.model.image_size, config.input.resize, mean, std, config.input.crop)
    manifest = open_manifest(config.data, roots, progress)
    rows = manifest.usable
    folds = make_folds(kind, rows, config.split, config.split_seed, manifest.own_ids)
    _check_first_weights(weights, manifest, folds, config.model.weights)
    seen = together(seen_by_weights(weights.of_fold(fold)) for fold in range(max(1, len(weights.folds))))
    if doubt := unrecorded(seen, f"The network of --weights {config.model.weights}"):
        progress.say(f"Warning: {doubt}")
    # Built once for nothing: weights that do not fit, or an impossible size, show now.
    model, loaded = new_model_with_report(config, spec, weights, len(manifest.classes), fold=0)
    tuned = adapt(model, config)
    return Job(
        kind, config, spec, weights, device, manifest, folds, preprocessing, count_parameters(model), tuned, loaded
    )


def _check_first_weights(weights: Weights, manifest: Manifest, folds: pd.DataFrame, choice: str) -> None:
    """Refuse a run as first weights whose folds are not ours, and to test a fold on what its weights have seen."""
    n_folds, rows = int(folds.fold.nunique()), manifest.usable
    if weights.folds and len(weights.folds) != n_folds:
        raise UsvitError(
            f"--weights {choice} is a run of {len(weights.folds)} folds, and this run has {n_folds}; fold k begins "
            f"where its fold k ended. Pass --set split.folds={len(weights.folds)}, or name a fold: {choice}/fold-0."
        )
    for fold in range(n_folds):
        if weights.of_fold(fold).passport is None:
            continue
        tested = rows.iloc[rows_of_part(folds, rows, "test", fold)]
        seen = seen_by_weights(weights.of_fold(fold))
        copies = seen.copies_among(described_among(manifest.descriptions, tested.sha256)[0])
        try:
            refuse_seen(tested, seen, f"The network of --weights {choice}", copies=copies)
        except LeakageError as error:
            if not weights.folds:
                raise
            same = f"To go on from a run, use its own folds: --folds {choice}/folds.csv."
            raise LeakageError(f"Fold {fold + 1}: {error} {same}") from error


def new_model_with_report(
    config: Training, spec: ModelSpec, weights: Weights, n_classes: int, fold: int
) -> tuple[nn.Module, LoadReport]:
    """The network that a fold begins from, and what was loaded into it; the same seed and fold give the same."""
    seed_everything(config.seed, "model", fold)
    return build_with_report(
        spec,
        weights.of_fold(fold),
        n_classes=n_classes,
        image_size=config.model.image_size,
        drop_path=config.model.drop_path,
        drop_path_schedule=config.model.drop_path_schedule,
        dropout=config.model.dropout,
    )


def adapt(model: nn.Module, config: Training) -> TuneReport:
    """Make a new network ready for its training: freeze what is not tuned, and compute again what is not kept.

    A head that starts at zero is given small random weights where LAMB trains it.

    Raises:
        UsvitError: the network has no such parts, or does not take a setting.
    """
    if config.model.grad_checkpointing:
        checkpoint_gradients(model)
    if config.optim.layer_decay is not None:
        check_layers(model)
    if config.optim.name == "lamb":
        start_off_zero(model)
    return set_trainable(model, config.model.tune)


def describe(job: Job, command: str) -> dict[str, Any]:
    """What ``run.json`` says of a run before it begins."""
    rows = job.manifest.usable
    kinds = rows.group_id.str.partition(":")[0].value_counts()
    return {
        **head_of_record(job.kind, default_out(job.kind, job.config), job.config, job.device, command),
        "data": {
            "datasets": list(job.manifest.roots),
            "classes": list(job.classes),
            "positive_class": job.manifest.positive_class,
            "n_images": len(rows),
            "n_groups": int(rows.group_id.nunique()),
            "class_counts": {label: int((rows.label == label).sum()) for label in job.classes},
            "grouping": {kind: int(kinds.get(kind, 0)) for kind in ("patient", "copies", "image")},
            "manifest_sha256": job.manifest.sha256(),
            "excluded": [
                {"dataset": row.dataset, "image_id": row.image_id, "reason": row.exclude_reason}
                for _, row in job.manifest.excluded.iterrows()
            ],
            "skipped": job.manifest.skipped_rows,
        },
        "folds": {
            "n": job.n_folds,
            "repeats": job.n_repeats,
            "sha256": folds_sha256(job.folds),
            "scheme": "file" if job.config.split.file else job.config.split.scheme,
            "unit": job.config.split.unit,
            "leaking_groups": len(leaking_groups(job.folds, rows)),
        },
        "model": model_of_record(job.spec, job.n_parameters, job.tuned, job.weights, job.loaded),
    }


def head_of_record(kind: str, out: Path, config: Training, device: Device, command: str) -> dict[str, Any]:
    """How every ``run.json`` begins, whatever the run does.

    Args:
        kind: of run.
        out: where it lies unless told otherwise.
        config: complete.
        device: resolved.
        command: how the user asked.
    """
    settings = config.model_dump(mode="json")
    return {
        "kind": kind,
        "name": out.name,
        "command": command,
        "config": settings,
        "config_sha256": sha256_of_text(str(sorted(identity(settings).items()))),
        "seed": config.seed,
        "device": device.describe(),
    }


def model_of_record(
    spec: ModelSpec, n_parameters: int, tuned: TuneReport | None, weights: Weights, loaded: LoadReport
) -> dict[str, Any]:
    """What ``run.json`` says of a network; ``tuned``: what of it is trained, where the run itself trains it."""
    return {
        "name": spec.name,
        "vit": dict(spec.changed),
        "timm": spec.architecture,
        "params": n_parameters,
        **({} if tuned is None else {"trainable": tuned.trainable}),
        "weights": weights.describe() | ({} if weights.source == "scratch" else {"loaded": loaded.describe()}),
    }


def calibration_of(job: Job, fold: int, inner: pd.DataFrame, logits: NDArray[np.float32]) -> dict[str, Any]:
    """What a fold's inner validation images say of its probabilities: temperature, and thresholds after it.

    Args:
        job: the run.
        fold: its number.
        inner: the n rows of the inner validation images.
        logits: (n, K) of the fold's network.

    Returns:
        For the passport: ``temperature``, ``temperature_reason``, and ``thresholds`` of the positive class by
        ``RULES``, each null with its reason where the images have none.
    """
    codes = np.array([job.classes.index(label) for label in inner.label], dtype=np.int64)
    k, scores = job.classes.index(job.manifest.positive_class), logits.astype(np.float64)
    none = "no inner validation images"
    fit = fit_temperature(codes, scores) if len(inner) else NoFit(none)
    prob = (Temperature(1.0) if isinstance(fit, NoFit) else fit).log_prob(scores)[:, k]
    thresholds = []
    for rule in RULES:
        # A fixed one needs no images.
        able = len(inner) > 0 or rule.kind == "fixed"
        choice = choose_threshold(codes == k, np.exp(prob), rule) if able else Choice(None, none)
        thresholds.append(
            {
                "rule": rule.name,
                "threshold": choice.threshold,
                "reason": choice.reason,
                "score": f"{'plain' if isinstance(fit, NoFit) else 'calibrated'} probability",
                "chosen_on": f"inner validation images of fold {fold}",
                "n_images": len(inner),
                "n_groups": int(inner.group_id.nunique()),
            }
        )
    return {
        "temperature": None if isinstance(fit, NoFit) else fit.value,
        "temperature_reason": fit.reason if isinstance(fit, NoFit) else None,
        "thresholds": thresholds,
    }


def novelty_of(
    novelty: Novelty | str, content: bytes, test: Observed, group: ArrayLike, repeat: int | None = None
) -> dict[str, Any]:
    """What the passport says of how novelty is judged, and how often images like the training images are flagged.

    Args:
        novelty: as ``fit_novelty`` gave it.
        content: of its file.
        test: the fold's test images, which had no part in it.
        group: (n,) the group of each; the interval of the rate counts groups.
        repeat: of a repeated cross-validation, so that no image is counted twice when rates are joined.
    """
    if isinstance(novelty, str):
        return {"novelty": None, "novelty_reason": novelty}
    rate = {
        "part": "test",
        **({} if repeat is None else {"repeat": repeat}),
        **rate_record(ShareSums.of(novelty.of(test) > 1, group)),
    }
    return {"novelty": {**novelty.describe(content), "in_distribution": rate}, "novelty_reason": None}


def passport(
    job: Job,
    fold: int,
    result: FitResult,
    learnt: dict[str, Any],
    seen: dict[str, Any],
) -> dict[str, Any]:
    """``model.json``: all that is needed to use a fold's weights, and to know what they have seen.

    ``learnt``: ``weights_sha256``, ``calibration_of`` and ``novelty_of``; ``seen``: the two keys that
    ``usvit.data.seen.write_seen`` returns.
    """
    return {
        "schema_version": PASSPORT_SCHEMA,
        "architecture": job.spec.name,
        "vit": dict(job.spec.changed),
        "timm": job.spec.architecture,
        "classes": list(job.classes),
        "positive_class": job.manifest.positive_class,
        "preprocessing": {
            "image_size": job.preprocessing.image_size,
            "resize": job.preprocessing.resize,
            "mean": list(job.preprocessing.mean),
            "std": list(job.preprocessing.std),
            "crop": job.preprocessing.crop,
        },
        "tune": job.config.model.tune,
        **learnt,
        "fold": fold,
        "steps": result.steps,
        "best_step": result.best_step,
        "recipe": job.config.recipe,
        "seed": job.config.seed,
        "upstream": {"source": "scratch"} if job.weights.source == "scratch" else job.weights.of_fold(fold).describe(),
        "data_licenses": job.manifest.licenses,
        **seen,
        "intended_use": "research only; not a medical device",
    }
