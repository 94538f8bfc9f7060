"""What pictures and reports tell of an image: the rows of ``scores.csv`` again, as values; no torch, no pydicom."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from usvit import __version__

RESEARCH_USE_ONLY = "RESEARCH USE ONLY - not a medical device"
MOST_FRAMES = 16
"""Of a loop the so many most suspicious frames are drawn and listed one by one; a roll-up speaks of the others."""


@dataclass(frozen=True)
class Scorer:
    """The networks that scored, as outputs name them."""

    name: str
    """Architecture: ``vit_b32``."""
    sha256: str
    """Of the weights: the version."""
    classes: tuple[str, ...]
    positive: str
    n_members: int = 1
    """Networks of the ensemble."""
    resize: str = "squash"
    """How a view becomes the network's square (``Preprocessing.resize``)."""

    @property
    def software(self) -> str:
        return f"usvit {__version__}"


@dataclass(frozen=True)
class Finding:
    """What the networks say of one frame."""

    frame: int
    """In its file, from 0."""
    probabilities: tuple[float, ...]
    """Of the classes, in their order, in [0, 1]."""
    calibrated: float
    """Probability of the positive class, in [0, 1]."""
    spread: float | None
    decision: str
    """The positive class, ``not <positive>``, or "" (abstained, or no threshold)."""
    threshold: float | None
    threshold_origin: str
    novelty: float | None
    """1 is the limit of what the networks know."""
    unusual: bool
    flags: tuple[str, ...]


def finding_of(row: Mapping[str, Any], scorer: Scorer) -> Finding:
    """A row of ``records.score_columns`` as a value.

    Raises:
        KeyError: a column is missing.
    """
    return Finding(
        frame=int(row["frame"]),
        probabilities=tuple(float(row[f"prob_{name}"]) for name in scorer.classes),
        calibrated=float(row[f"calibrated_{scorer.positive}"]),
        spread=_number(row[f"spread_{scorer.positive}"]),
        decision=str(row["decision"] or ""),
        threshold=_number(row["threshold"]),
        threshold_origin=str(row["threshold_origin"] or ""),
        novelty=_number(row["novelty"]),
        unusual=bool(row["unusual"]),
        flags=tuple(name for name in str(row["flags"] or "").split(";") if name),
    )


def most_suspicious(findings: Sequence[Finding], most: int = MOST_FRAMES) -> list[Finding]:
    """The ``most`` findings of the highest calibrated probability, the earlier frame first where equal; by frame."""
    ranked = sorted(findings, key=lambda one: (-one.calibrated, one.frame))
    return sorted(ranked[:most], key=lambda one: one.frame)


def shown_frames(rows: Sequence[Mapping[str, Any]], scorer: Scorer, most: int = MOST_FRAMES) -> list[int]:
    """Numbers of the frames that are drawn: whose saliency ``write_products`` needs, where it is wanted."""
    return [one.frame for one in most_suspicious([finding_of(row, scorer) for row in rows], most)]


def _number(value: object) -> float | None:
    """None for what is absent in a table: None, "" or NaN."""
    if value is None or value == "":
        return None
    number = float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else None
