"""Rows of a made-up scored set, as the journal hands them out."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from usvit.records import ScoringModelRecord
from usvit.scoring.items import FAILURES, PRIVATE_COLUMNS
from usvit.scoring.tables.summary import JobFacts

CLASSES, POSITIVE, THRESHOLD = ("benign", "malignant", "normal"), "malignant", 0.3
_FLAGGED = {
    "on": "test images of the networks' own folds, each judged by the one network that has not seen it",
    "n_images": 780,
    "n_groups": 700,
    "n_flagged": 41,
    "rate": 0.0526,
    "ci95": [0.039, 0.0706],
    "method": "clustered Wilson",
}
_MODEL = {
    "sha256": "ab" * 32,
    "classes": list(CLASSES),
    "positive_class": POSITIVE,
    "preprocessing": {"image_size": 224, "resize": "pad", "crop": "tissue", "mean": [0.5] * 3, "std": [0.5] * 3},
    "members": [{"fold": k, "architecture": "vit_b32", "temperature": 1.1 + k / 10} for k in range(5)],
    "flip": False,
    "calibration": None,
    "novelty": {"threshold": 1.0, "combined": "median of the networks", "in_distribution": _FLAGGED},
    "seen": {"known": "copies", "n_hashes": 780, "n_descriptions": 780, "gaps": []},
    "device": {"type": "cpu", "name": "a processor", "precision": "fp32", "threads": 2},
}
JOB = JobFacts(
    model=ScoringModelRecord.model_validate(_MODEL),
    settings={"frames": "all", "abstain": False, "keep_ids": False, "products": []},
    versions={"usvit": "0.6.0", "torch": "2.15.0"},
    started="2026-11-21T20:00:00+00:00",
    finished="2026-11-21T23:12:00+00:00",
    seconds=11520.0,
)


def pseudonym(kind: str, number: int) -> str:
    """16 hexadecimal digits, as ``Pseudonyms`` gives."""
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()[:16]


def row(item: int | str, frame: int = 0, prob: float = 0.5, **changes: Any) -> dict[str, Any]:
    """One row of ``scores.csv``: three items a study, two studies a patient."""
    number = item if isinstance(item, int) else 0
    own = {
        "item_id": pseudonym("item", item) if isinstance(item, int) else item,
        "frame": frame,
        "instance_id": pseudonym("instance", number),
        "study_id": pseudonym("study", number // 3),
        "patient_id": pseudonym("patient", number // 6),
        "kind": "dicom",
        "n_frames": 1,
        "prob_benign": (1 - prob) * 0.75,
        "prob_malignant": prob,
        "prob_normal": (1 - prob) * 0.25,
        "calibrated_malignant": prob,
        "spread_malignant": prob * (1 - prob) / 4,
        "decision": POSITIVE if prob >= THRESHOLD else f"not {POSITIVE}",
        "abstained": "unusual" if changes.get("decision") == "" and changes.get("threshold", THRESHOLD) else "",
        "threshold": THRESHOLD,
        "threshold_origin": "sensitivity at least 0.9 on out-of-fold validation images of 5 folds",
        "novelty": 0.4,
        "unusual": False,
        "seen": False,
        "flags": "",
        "quality": 0.7,
        "pixel_spacing_mm": None,
        "brightness": 60.0,
        "contrast": 45.0,
        "width": 800,
        "height": 600,
        "pixel_sha256": f"{number:064x}",
        "file_sha256": f"{number + 1:064x}",
        "model_sha256": "ab" * 32,
        **dict.fromkeys(PRIVATE_COLUMNS, ""),
    }
    assert set(changes) <= set(own)
    return own | changes


def portions(rows: list[dict[str, Any]], size: int = 1000) -> Iterator[list[dict[str, Any]]]:
    """``scores`` as ``write_tables`` takes them."""
    return (rows[at : at + size] for at in range(0, len(rows), size))


def failed(
    *codes: str, start: int = 900_000, frame: int | None = None, path: str = ""
) -> Iterator[list[dict[str, Any]]]:
    """``failures``: one whole file for each code, or frames of files."""
    yield [
        {"item_id": pseudonym("item", start + k), "path": path, "frame": frame, "code": code, "reason": FAILURES[code]}
        for k, code in enumerate(codes)
    ]


def many(n: int, seed: int = 0, **changes: Any) -> list[dict[str, Any]]:
    """About ``n`` rows like those of a real export: stills, a few loops, some unusual and flagged images."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    item = 0
    while len(rows) < n:
        loop = 1 if rng.random() < 0.9 else int(rng.integers(2, 30))
        level = rng.beta(0.6, 1.8)
        for frame in range(loop):
            prob = float(np.clip(level + rng.normal(0, 0.03), 0.001, 0.999))
            novelty = float(rng.gamma(6, 0.09) * (8 if rng.random() < 0.02 else 1))
            chosen = [name for name in ("text", "calipers", "colour", "doppler", "letterbox") if rng.random() < 0.12]
            told = {"n_frames": loop, "novelty": novelty, "unusual": novelty > 1, "flags": ";".join(chosen)}
            told |= {"quality": float(rng.beta(6, 2)), "seen": bool(rng.random() < 0.003)}
            rows.append(row(item, frame, prob, **told, **changes))
        item += 1
    return rows[:n]
