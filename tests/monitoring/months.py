"""Scored months of a made-up site, written by the real writer of ``usvit score``."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.scoring.scored import CLASSES, JOB, POSITIVE, THRESHOLD, failed, portions, pseudonym, row
from usvit.records import ScoringCalibration
from usvit.scoring.tables.writer import write_tables


def write_month(
    folder: Path,
    month: str,
    *,
    n_patients: int = 40,
    seed: int | None = None,
    brighter: float = 0.0,
    failures: int = 0,
    sha256: str = "ab" * 32,
    started: str | None = None,
    calibration: str | None = None,
    threshold: float | None = THRESHOLD,
    **changes,
) -> Path:
    """Write a folder of scores: 1 to 5 images a patient, dated in the middle of the month, or as ``changes`` say."""
    number = int(month.replace("-", ""))
    rng = np.random.default_rng(number if seed is None else seed)
    rows, base = [], number * 10_000
    for patient in range(n_patients):
        level, grey = rng.normal(), 60 + 10 * rng.normal() + brighter
        for _ in range(rng.integers(1, 6)):
            prob = float(1 / (1 + np.exp(1 - level - 0.5 * rng.normal())))
            own = {
                "patient_id": pseudonym("patient", number * 1000 + patient),
                "brightness": float(grey + 5 * rng.normal()),
                "unusual": bool(rng.random() < 0.03),
                "study_date": f"{month}-15",
                "model_sha256": sha256,
                "threshold": threshold,
                "decision": "" if threshold is None else POSITIVE if prob >= threshold else f"not {POSITIVE}",
            }
            rows.append(row(base + len(rows), 0, prob, **own | changes))
    job = replace(
        JOB,
        started=started or f"{month}-28T10:00:00+00:00",
        model=JOB.model.model_copy(
            update={
                "sha256": sha256,
                "calibration": calibration
                and ScoringCalibration(temperature=1.0, n_images=100, n_groups=50, sha256=calibration),
            }
        ),
    )
    write_tables(
        folder,
        portions(rows),
        failed(*["damaged"] * failures, start=base + 5000),
        job,
        classes=CLASSES,
        positive=POSITIVE,
        threshold=threshold,
        threshold_origin="validation images",
    )
    return folder
