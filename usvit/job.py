"""A job: everything that a run needs, resolved and checked before anything is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from usvit.config import RunConfig, identity
from usvit.data.cards import load_cards
from usvit.data.loading import Preprocessing
from usvit.data.manifest import Manifest, build_manifest
from usvit.data.splits import cross_validation, folds_sha256, hold_out
from usvit.files import sha256_of_text
from usvit.models.build import build_model, count_parameters, input_statistics
from usvit.models.weights import Weights, resolve_weights
from usvit.models.zoo import ModelSpec, find_model
from usvit.progress import Progress
from usvit.train.device import Device, resolve_device, seed_everything
from usvit.train.loop import FitResult

Kind = Literal["cv", "train"]
PASSPORT_SCHEMA = "1.0"


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

    @property
    def classes(self) -> tuple[str, ...]:
        return self.manifest.classes

    @property
    def n_folds(self) -> int:
        return int(self.folds.fold.nunique())

    def fold_name(self, fold: int) -> str:
        """What progress calls a fold, counted from one."""
        return f"fold {fold + 1}/{self.n_folds}" if self.kind == "cv" else "training"


def default_out(kind: Kind, config: RunConfig) -> Path:
    """``runs/busi-vit_b32-gheflati2022_vit-seed0``, with ``-train`` for a hold-out."""
    name = f"{config.data.dataset}-{config.model.name}-{config.recipe}-seed{config.seed}"
    name = name.replace(":", "-").replace("/", "-")
    return Path("runs") / (name if kind == "cv" else f"{name}-train")


def prepare(kind: Kind, config: RunConfig, roots: dict[str, Path], progress: Progress) -> Job:
    """Resolve and check everything, the cheap first: a run that cannot be made stops here."""
    device = resolve_device(config.device, config.precision)
    spec = find_model(config.model.name)
    load_cards(config.data.dataset)
    weights = resolve_weights(config.model.weights, spec)
    mean, std = input_statistics(spec)
    preprocessing = Preprocessing(config.model.image_size, config.input.resize, mean, std)
    manifest = build_manifest(
        config.data.dataset,
        roots,
        progress,
        skip_bad=config.data.skip_bad,
        keep_label_conflicts=config.data.keep_label_conflicts,
    )
    seed = config.seed if config.data.split_seed is None else config.data.split_seed
    split = cross_validation if kind == "cv" else hold_out
    folds = split(manifest.usable, config.split, seed)
    # Built once for nothing: weights that do not fit, or an impossible size, show now.
    n_parameters = count_parameters(new_model(config, spec, weights, manifest.classes, fold=0))
    return Job(kind, config, spec, weights, device, manifest, folds, preprocessing, n_parameters)


def new_model(config: RunConfig, spec: ModelSpec, weights: Weights, classes: tuple[str, ...], fold: int) -> nn.Module:
    seed_everything(config.seed, "model", fold)
    return build_model(
        spec,
        weights,
        n_classes=len(classes),
        image_size=config.model.image_size,
        drop_path=config.model.drop_path,
    )


def describe(job: Job, command: str) -> dict[str, Any]:
    """What ``run.json`` says of a run before it begins."""
    rows, config = job.manifest.usable, job.config.model_dump(mode="json")
    kinds = rows.group_id.str.partition(":")[0].value_counts()
    return {
        "kind": job.kind,
        "name": default_out(job.kind, job.config).name,
        "command": command,
        "config": config,
        "config_sha256": sha256_of_text(str(sorted(identity(config).items()))),
        "seed": job.config.seed,
        "device": job.device.describe(),
        "data": {
            "datasets": job.config.data.dataset.split("+"),
            "classes": list(job.classes),
            "positive_class": job.manifest.positive_class,
            "n_images": len(rows),
            "n_groups": int(rows.group_id.nunique()),
            "class_counts": {label: int((rows.label == label).sum()) for label in job.classes},
            "grouping": {kind: int(kinds.get(kind, 0)) for kind in ("patient", "pixels", "image")},
            "manifest_sha256": job.manifest.sha256(),
            "excluded": [
                {"dataset": row.dataset, "image_id": row.image_id, "reason": row.exclude_reason}
                for _, row in job.manifest.excluded.iterrows()
            ],
            "skipped": [{"path": bad.path.name, "reason": bad.reason} for bad in job.manifest.skipped],
        },
        "folds": {"n": job.n_folds, "sha256": folds_sha256(job.folds)},
        "model": {
            "name": job.spec.name,
            "timm": job.spec.timm_name,
            "params": job.n_parameters,
            "weights": job.weights.describe(),
        },
    }


def passport(
    job: Job, fold: int, rows: pd.DataFrame, at: dict[str, NDArray[np.int64]], result: FitResult
) -> dict[str, Any]:
    """``model.json``: all that is needed to use a fold's weights, and to know what they have seen."""
    return {
        "schema_version": PASSPORT_SCHEMA,
        "architecture": job.spec.name,
        "timm": job.spec.timm_name,
        "classes": list(job.classes),
        "positive_class": job.manifest.positive_class,
        "preprocessing": {
            "image_size": job.preprocessing.image_size,
            "resize": job.preprocessing.resize,
            "mean": list(job.preprocessing.mean),
            "std": list(job.preprocessing.std),
        },
        "temperature": None,
        "thresholds": {},
        "fold": fold,
        "steps": result.steps,
        "best_step": result.best_step,
        "recipe": job.config.recipe,
        "seed": job.config.seed,
        "upstream": {**job.weights.describe(), "pretrained_by": job.spec.upstream}
        if job.weights.source != "scratch"
        else {"source": "scratch"},
        "data_licenses": {card.name: card.license for card in load_cards(job.config.data.dataset)},
        "seen_sha256": {part: rows.sha256.iloc[at[part]].tolist() for part in ("train", "val")},
        "intended_use": "research only; not a medical device",
    }
