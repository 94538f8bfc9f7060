"""Folders as ``usvit score`` writes them, made from numbers: for tests of what comes after."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.records.contents import content
from usvit.pseudonyms import Pseudonyms
from usvit.records import ScoringModelRecord
from usvit.scoring.external.evaluation import evaluate_scores
from usvit.scoring.items import FAILURE_COLUMNS, IMAGE_COLUMNS, PRIVATE_COLUMNS, score_columns
from usvit.scoring.tables.summary import JobFacts
from usvit.scoring.tables.writer import write_tables

CLASSES = ("benign", "malignant")
MODEL = "5" * 64
CLOCK = {"started": "2026-11-21T20:00:00+00:00", "finished": "2026-11-21T20:01:00+00:00", "seconds": 60.0}


def make_scores(
    out: Path,
    *,
    n_patients: int = 60,
    per_patient: int = 2,
    frames: int = 1,
    seed: int = 0,
    key: Path,
    failed: int = 3,
    threshold: float | None = 0.4,
    temperature: float = 2.0,
    classes: tuple[str, ...] = CLASSES,
    keep_ids: bool = False,
    abstain: bool = False,
    change: Any = None,
) -> pd.DataFrame:
    """Write a finished scoring job of DICOM files, and return the truth: one row an item.

    Args:
        out: the folder.
        n_patients, per_patient, frames: the half of the patients are malignant; the rest share the other classes.
        seed: of the scores.
        key: of the pseudonyms, made where missing.
        failed: files, of patients of their own, that could not be read.
        threshold: on the calibrated probability.
        temperature: the networks' log-odds are this many times too large; their calibration knows nothing of it.
        classes: "malignant" must be one.
        keep_ids: fill the private columns.
        abstain: unusual images get no decision.
        change: a function of the rows, just before they are written.

    Returns:
        Columns path, sop, study, patient (as the hospital calls them), label, item_id, failed.
    """
    rng, ids = np.random.default_rng(seed), Pseudonyms.of_key(key)
    rows, truth, failures = [], [], []
    others = [name for name in classes if name != "malignant"]
    for patient in range(n_patients):
        malignant = patient % 2 == 0
        label = "malignant" if malignant else others[patient // 2 % len(others)]
        centre = rng.normal(1.6 if malignant else -1.6, 1.2)
        for image in range(per_patient):
            number = patient * per_patient + image
            path, sop = f"export/NAME{patient}/IM{number:04d}", f"1.2.3.{number + 1}"
            study, who = f"1.2.9.{patient + 1}", f"HOSPITAL-{patient:03d}"
            item = ids.item(path)
            truth.append([path, sop, study, who, label, item, False])
            for frame in range(frames):
                odds = temperature * (centre + rng.normal(0, 0.7))
                positive = 1 / (1 + np.exp(-odds))
                share = rng.dirichlet(np.ones(len(others)))
                prob = dict(zip(others, (1 - positive) * share, strict=True)) | {"malignant": positive}
                unusual = bool(rng.random() < 0.1)
                decided = threshold is not None and not (abstain and unusual)
                private = dict(zip(PRIVATE_COLUMNS, (path, sop, study, who, "MAKER", ""), strict=True))
                rows.append(
                    {
                        "item_id": item,
                        "frame": frame,
                        "instance_id": ids.instance(sop),
                        "study_id": ids.study(study),
                        "patient_id": ids.patient(who),
                        "kind": "dicom",
                        "n_frames": frames,
                        **{f"prob_{name}": prob[name] for name in classes},
                        "calibrated_malignant": positive,
                        "spread_malignant": 0.0,
                        "decision": ("malignant" if positive >= threshold else "not malignant") if decided else "",
                        "abstained": "" if decided or threshold is None else "unusual",
                        "threshold": threshold,
                        "threshold_origin": "sensitivity >= 0.9 on 100 out-of-fold images",
                        "novelty": 1.5 if unusual else 0.5,
                        "unusual": unusual,
                        "seen": False,
                        "flags": "text" if rng.random() < 0.3 else "",
                        "quality": float(rng.random()),
                        "pixel_spacing_mm": 0.1,
                        **dict.fromkeys(IMAGE_COLUMNS),
                        "pixel_sha256": f"{number * frames + frame:064x}",
                        "file_sha256": f"{number:064x}",
                        "model_sha256": MODEL,
                        **(private if keep_ids else dict.fromkeys(private, "")),
                    }
                )
    for number in range(failed):
        path = f"export/BROKEN{number}/IM9999"
        truth.append([path, "", "", f"HOSPITAL-X{number}", CLASSES[number % 2], ids.item(path), True])
        reason = "it ends before its pixels do"
        failures.append([ids.item(path), path if keep_ids else "", None, "truncated", reason])
    scores = pd.DataFrame(rows, columns=score_columns(classes, "malignant"))
    if change is not None:
        scores = change(scores)
    model = ScoringModelRecord.model_validate(content("scores")["model"] | {"sha256": MODEL})
    write_tables(
        out,
        [scores],
        [pd.DataFrame(failures, columns=list(FAILURE_COLUMNS))],
        JobFacts(model=model, settings={}, versions={}, **CLOCK),
        classes=classes,
        positive="malignant",
        threshold=threshold,
        threshold_origin="out-of-fold",
        abstain=abstain,
    )
    (out / "job.json").write_text(json.dumps(content("job", identity={"key": ids.fingerprint})))
    return pd.DataFrame(truth, columns=["path", "sop", "study", "patient", "label", "item_id", "failed"])


def evaluated(*arguments, **settings):
    """Return the content of metrics.json as a dictionary, and the table, of ``evaluate_scores``."""
    record, found = evaluate_scores(*arguments, **settings)
    return record.content(), found
