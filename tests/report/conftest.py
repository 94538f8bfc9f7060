"""Fake run directories with the files, the shapes and about the numbers of a real one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from usvit.files import write_csv, write_json
from usvit.metrics.predictions import predictions_table
from usvit.metrics.summary import summarise

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def fake_run(
    folder: Path,
    *,
    kind: str = "cv",
    classes: tuple[str, ...] = ("benign", "malignant", "normal"),
    shares: tuple[float, ...] = (0.56, 0.27, 0.17),
    n: int = 778,
    n_folds: int = 5,
    seed: int = 0,
    change: Callable[[dict[str, Any]], None] = lambda record: None,
) -> Path:
    """Write a run directory; ``change`` may edit run.json before it is written."""
    rng = np.random.default_rng(seed)
    sizes = [round(n * share) for share in shares[:-1]]
    codes = rng.permutation(np.repeat(range(len(classes)), [*sizes, n - sum(sizes)]))
    names = [f"{classes[k]} ({i + 1})" for i, k in enumerate(codes)]
    rows = pd.DataFrame(
        {"image_id": names, "group_id": names, "patient_id": None, "dataset": "busi"}
        | {"label": [classes[k] for k in codes]}
    )
    if kind == "train":
        n_folds, test_fold = 1, np.where(np.arange(n) % 7 == 0, 0, -1)
    else:
        test_fold = np.arange(n) % n_folds
    positive = classes[1]

    tables, splits, results = [], [], []
    for fold in range(n_folds):
        test = test_fold == fold
        truth = np.eye(len(classes))[codes[test]]
        logits = rng.normal(size=truth.shape) * 1.3 + rng.normal(2.6, 0.3) * truth
        tables.append(predictions_table(rows[test], logits, classes=classes, fold=fold, part="test"))
        part = np.where(test, "test", np.where(rng.random(n) < 0.18, "val", "train"))
        splits.append(pd.DataFrame({"dataset": "busi", "image_id": names, "fold": fold, "part": part}))
        history = _history(rng)
        write_csv(folder / f"fold-{fold}" / "history.csv", history)
        best = int(history.loc[history["val_loss"].idxmin(), "step"])
        results.append({"fold": fold, "steps": 250, "best_step": best, "seconds": 412.7, "images_per_second": 77.6})
    pooled = pd.concat(tables, ignore_index=True)
    write_csv(folder / "predictions.csv", pooled)
    write_csv(folder / "folds.csv", pd.concat(splits, ignore_index=True))
    write_json(folder / "metrics.json", summarise(pooled, classes=classes, positive=positive))

    record = {
        "schema_version": "1.0", "kind": kind, "name": folder.name, "state": "finished",
        "created": "2025-11-21T09:12:44+00:00", "finished": "2025-11-21T09:48:01+00:00", "usvit_version": "0.1.0",
        "command": f"usvit {kind} --dataset busi --model vit_b32 --recipe gheflati2022_vit --seed 7",
        "config": {
            "recipe": "gheflati2022_vit", "seed": 7, "device": "auto", "precision": "auto",
            "data": {"dataset": "busi", "split_seed": None}, "model": {"name": "vit_b32", "weights": "hub"},
            "optim": {"name": "sgd", "lr": 0.001, "momentum": 0.9, "clip_norm": 1.0},
        },
        "config_sha256": HASH, "versions": {"python": "3.11.7", "torch": "2.9.1", "timm": "1.0.22"},
        "device": {"type": "cpu", "name": "AMD EPYC 9454 48-Core", "precision": "bf16", "threads": 2},
        "data": {
            "datasets": ["busi"], "classes": list(classes), "positive_class": positive, "n_images": n, "n_groups": n,
            "class_counts": {name: int((codes == k).sum()) for k, name in enumerate(classes)},
            "grouping": {"patient": 0, "copies": 0, "image": n}, "manifest_sha256": HASH[::-1],
            "excluded": [
                {"dataset": "busi", "image_id": name, "reason": "same pixels as another image with another label"}
                for name in ("benign (163)", "malignant (55)")
            ],
            "skipped": [],
        },
        "folds": {"n": n_folds, "sha256": HASH},
        "model": {
            "name": "vit_b32", "timm": "vit_base_patch32_224.augreg_in21k", "params": 87457539,
            "weights": {"source": "hub", "file": "timm/vit_base_patch32_224.augreg_in21k", "sha256": HASH},
        },
        "results": results, "seconds": 2117.3,
    }  # fmt: skip
    change(record)
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def _history(rng: np.random.Generator) -> pd.DataFrame:
    """A loss a step, a validation every tenth, as the trainer leaves it: other cells empty."""
    step = np.arange(1, 251)
    history = pd.DataFrame({"step": step, "epoch": step / 4, "lr": 1e-3 * np.cos(step / 250 * np.pi / 2)})
    history["train_loss"] = 0.25 + 0.85 * np.exp(-step / 60) + rng.normal(0, 0.04, 250)
    val = 0.45 + 0.65 * np.exp(-step / 45) + 0.0007 * np.maximum(step - 140, 0) + rng.normal(0, 0.012, 250)
    evaluated = step % 10 == 0
    history["val_loss"] = np.where(evaluated, val, np.nan)
    history["val_accuracy"] = np.where(evaluated, 1 - val / 2.5, np.nan)
    history["val_auc"] = np.where(evaluated, 1 - val / 5, np.nan)
    return history


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return fake_run(tmp_path / "vit-b32-busi")
