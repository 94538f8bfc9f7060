"""Fake run directories with the files, the shapes and about the numbers of a real one; and a browser."""

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.evaluation.contents import summarise
from tests.records.contents import network
from usvit.evaluation.predictions import predictions_table
from usvit.files import write_csv, write_json

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PATIENCE_MS = 600_000


@functools.cache
def fake_numbers(
    kind: str, classes: tuple[str, ...], shares: tuple[float, ...], n: int, n_folds: int, seed: int, patients: int
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Manifest, predictions (val and test), folds and metrics. Made once, since intervals take seconds; only read."""
    rng = np.random.default_rng(seed)
    sizes = [round(n * share) for share in shares[:-1]]
    codes = rng.permutation(np.repeat(range(len(classes)), [*sizes, n - sum(sizes)]))
    names = [f"{classes[k]} ({i + 1})" for i, k in enumerate(codes)]
    person = np.arange(n) % patients if patients else np.arange(n)
    rows = pd.DataFrame(
        {
            "image_id": names,
            "path": [f"{i}.png" for i in range(n)],
            "frame": 0,
            "dataset": "busi",
            "label": [classes[k] for k in codes],
            "label_source": "biopsy",
            "patient_id": [f"p{k:03d}" for k in person] if patients else None,
            "group_id": [f"patient:busi:p{k:03d}" for k in person] if patients else names,
            "sha256": [f"{i:064x}" for i in range(n)],
            "device": np.where(person % 2, "scanner A", "scanner B"),
        }
    )
    if kind == "train":
        n_folds, test_fold = 1, np.where(person % 7 == 0, 0, -1)
    else:
        test_fold = person % n_folds
    draw = rng.random(person.max() + 1)  # one number a person: parts never divide one
    tables, splits = [], []
    for fold in range(n_folds):
        part = np.where(test_fold == fold, "test", np.where(draw[person] < 0.18, "val", "train"))
        told = part != "train"
        truth = np.eye(len(classes))[codes[told]]
        logits = rng.normal(size=truth.shape) * 1.3 + rng.normal(2.6, 0.3) * truth
        tables.append(predictions_table(rows[told], logits, classes=classes, fold=fold, part=part[told].tolist()))
        splits.append(pd.DataFrame({"dataset": "busi", "image_id": names, "fold": fold, "part": part}))
    predictions = pd.concat(tables, ignore_index=True)
    metrics = summarise(predictions, classes=classes, positive=classes[1], columns=rows)
    return rows, predictions, pd.concat(splits, ignore_index=True), metrics


def copy_gaps() -> list[dict[str, str]]:
    """Made-up images have no near-duplicate descriptions, and weights of the hub list no images."""
    own = [{"part": part, "known": "hashes", "what": "the images of busi"} for part in ("train", "val")]
    return [*own, {"part": "upstream", "known": "nothing", "what": "hub weights timm/vit_base"}]


def fake_run(
    folder: Path,
    *,
    kind: str = "cv",
    classes: tuple[str, ...] = ("benign", "malignant", "normal"),
    shares: tuple[float, ...] = (0.56, 0.27, 0.17),
    n: int = 778,
    n_folds: int = 5,
    seed: int = 0,
    patients: int = 0,
    change: Callable[[dict[str, Any]], None] = lambda record: None,
) -> Path:
    """Write a run directory; ``change`` may edit run.json before it is written. ``patients``: none, or so many."""
    rows, predictions, folds, metrics = fake_numbers(kind, classes, shares, n, n_folds, seed, patients)
    rng = np.random.default_rng(seed)
    results, positive = [], classes[1]
    for fold in sorted(set(folds["fold"])):
        inside = folder / f"fold-{fold}"
        write_csv(inside / "predictions.csv", predictions[predictions["fold"] == fold])
        history = _history(rng)
        write_csv(inside / "history.csv", history)
        best = int(history.loc[history["val_loss"].idxmin(), "step"])
        results.append({"fold": fold, "steps": 250, "best_step": best, "seconds": 412.7, "images_per_second": 77.6})
        part = folds.loc[folds["fold"] == fold, "part"].to_numpy()
        seen = {name: rows["sha256"][part == name].tolist() for name in ("train", "val")}
        write_json(
            inside / "model.json",
            network(
                preprocessing={
                    "image_size": 224,
                    "resize": "pad",
                    "crop": "tissue",
                    "mean": [0.5] * 3,
                    "std": [0.5] * 3,
                },
                seen_sha256={**seen, "upstream": []},
                seen_copies={"files": [], "gaps": copy_gaps()},
                data_licenses={"busi": "unclear"},
            ),
        )
    rows.to_parquet(folder / "manifest.parquet", index=False)
    write_csv(folder / "predictions.csv", predictions[predictions["part"] == "test"])
    write_csv(folder / "folds.csv", folds)
    write_json(folder / "metrics.json", metrics)
    counts = rows["label"].value_counts()

    record = {
        "schema_version": "1.0", "kind": kind, "name": folder.name, "state": "finished",
        "created": "2025-11-21T09:12:44+00:00", "finished": "2025-11-21T09:48:01+00:00", "usvit_version": "0.1.0",
        "command": f"usvit {kind} --dataset busi --model vit_b32 --recipe gheflati2022_vit --seed 7",
        "config": {
            "recipe": "gheflati2022_vit", "seed": 7, "device": "auto", "precision": "auto",
            "data": {"dataset": "busi", "classes": None, "keep_list": None, "split_seed": None},
            "model": {"name": "vit_b32", "weights": "hub", "image_size": 224},
            "input": {"resize": "pad", "crop": "whole", "augment": "light"}, "loss": {"class_weights": "balanced"},
            "train": {
                "batch_size": 128, "steps": 250, "epochs": None,
                "early_stopping": {"monitor": "val_loss", "keep": "best"},
            },
            "optim": {
                "name": "sgd", "lr": 0.001, "schedule": "cosine", "weight_decay": 0.0,
                "momentum": 0.9, "clip_norm": 1.0,
            },
            "split": {"folds": n_folds},
        },
        "config_sha256": HASH, "versions": {"python": "3.11.7", "torch": "2.9.1", "timm": "1.0.22"},
        "device": {"type": "cpu", "name": "AMD EPYC 9454 48-Core", "precision": "bf16", "threads": 2},
        "data": {
            "datasets": ["busi"], "classes": list(classes), "positive_class": positive, "n_images": n,
            "n_groups": int(rows["group_id"].nunique()),
            "class_counts": {name: int(counts.get(name, 0)) for name in classes},
            "grouping": {"patient": n if patients else 0, "copies": 0, "image": 0 if patients else n},
            "manifest_sha256": HASH[::-1],
            "excluded": [
                {"dataset": "busi", "image_id": name, "reason": "same pixels as another image with another label"}
                for name in ("benign (163)", "malignant (55)")
            ],
            "skipped": [],
        },
        "folds": {"n": len(results), "sha256": HASH, "scheme": "drawn", "unit": "group", "leaking_groups": 0},
        "model": {
            "name": "vit_b32", "vit": {}, "timm": "vit_base_patch32_224.augreg_in21k", "params": 87457539,
            "weights": {
                "source": "hub", "name": None, "file": "timm/vit_base_patch32_224.augreg_in21k", "sha256": HASH,
                "license": None, "upstream": None, "pretrained_by": None,
            },
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


@pytest.fixture(scope="module")
def browser() -> Iterator:
    if CHROMIUM is None:
        pytest.skip("no chromium here (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser) -> Iterator[Callable]:
    """Open a page; afterwards nothing may have been asked for, complained about or popped up."""
    seen: list[str] = []
    asked: list[str] = []
    opened: list[str] = []
    contexts = []

    def visit(path, width=1280, scheme="light", javascript=True):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=javascript
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", lambda message: seen.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (seen.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        opened.append(path.as_uri())
        page.goto(path.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert seen == []
    # A picture inside the page, and a file that the page makes, are no requests that leave it.
    assert {url for url in asked if not url.startswith(("data:image/jpeg;base64,", "blob:"))} <= set(opened)
