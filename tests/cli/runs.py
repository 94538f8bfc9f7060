"""Run directories as ``usvit cv`` leaves them, without training: for commands that read runs."""

from pathlib import Path

import numpy as np
import pandas as pd

from tests.records.contents import content, network
from usvit.evaluation.predictions import predictions_table
from usvit.files import write_csv, write_json

CLASSES = ["benign", "malignant"]


def make_run(folder: Path, *, seed: int, skill: float = 1.5, n: int = 90, n_folds: int = 3) -> Path:
    """Patients of two images; fold k is tested on every third patient and stopped by the next fold's.

    The images, labels, patients and folds depend on n and n_folds alone; ``seed`` and ``skill`` are the network's.
    """
    patient, fixed = np.arange(n) // 2, np.random.default_rng(7)
    codes = (patient * 7 % 5 < 2).astype(int)
    rows = pd.DataFrame(
        {
            "image_id": [f"{i:04d}" for i in range(n)],
            "group_id": [f"patient:demo:{one}" for one in patient],
            "patient_id": patient.astype(str),
            "dataset": "demo",
            "label": np.array(CLASSES)[codes],
            "sha256": [f"{value:064x}" for value in fixed.integers(0, 2**62, n)],
            "device": np.where(patient % 2, "A", "B"),
            "birads": None,
        }
    )
    rng = np.random.default_rng(seed)
    tables, splits = [], []
    for fold in range(n_folds):
        part = np.where(
            patient % n_folds == fold, "test", np.where(patient % n_folds == (fold + 1) % n_folds, "val", "train")
        )
        splits.append(rows[["dataset", "image_id"]].assign(fold=fold, part=part))
        which = np.flatnonzero(part != "train")
        logits = rng.normal(size=(len(which), 2)) + skill * np.eye(2)[codes[which]]
        table = predictions_table(rows.iloc[which], logits, classes=CLASSES, fold=fold, part=part[which].tolist())
        tables.append(table)
        write_csv(folder / f"fold-{fold}" / "predictions.csv", table)
        seen = {one: rows.sha256[part == one].tolist() for one in ("train", "val")} | {"upstream": []}
        write_json(folder / f"fold-{fold}" / "model.json", network(seen_sha256=seen))
    pooled = pd.concat(tables, ignore_index=True)
    write_csv(folder / "predictions.csv", pooled[pooled.part == "test"])
    write_csv(folder / "folds.csv", pd.concat(splits, ignore_index=True))
    rows.to_parquet(folder / "manifest.parquet", index=False)
    data = {"classes": CLASSES, "positive_class": "malignant"}
    write_json(folder / "run.json", content("run", folds={"n": n_folds, "unit": "group"}, data=data))
    return folder
