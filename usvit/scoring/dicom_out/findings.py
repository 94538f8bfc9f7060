"""Content of pictures and reports, taken from the rows of ``scores.csv``; imports neither torch nor pydicom."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from usvit import __version__
from usvit.scoring.items import VIEW_WEIGHT

RESEARCH_USE_ONLY = "RESEARCH USE ONLY - not a medical device"
MOST_FRAMES = 16
"""Maximum number of frames of a loop that are drawn and listed one by one; a roll-up summarises the others."""


@dataclass(frozen=True)
class ScoringModel:
    """Description of the networks in the outputs."""

    name: str
    """Architecture, such as ``vit_b32``."""
    sha256: str
    """Hash of the weights, used as the version."""
    classes: tuple[str, ...]
    positive: str
    n_members: int = 1
    """Number of networks in the ensemble."""
    resize: str = "squash"
    """Method of resizing a view to the network's square input (``Preprocessing.resize``)."""
    segmenter: tuple[str, str] | None = None
    """Name and hash of the segmenter that marks the lesion; None if the networks themselves do."""

    @property
    def of_masks(self) -> "ScoringModel":
        """The description of what marks the lesion."""
        return self if self.segmenter is None else replace(self, name=self.segmenter[0], sha256=self.segmenter[1])

    @property
    def software(self) -> str:
        return f"usvit {__version__}"

    @property
    def version(self) -> str:
        """usvit and the weights, as the objects name them."""
        return f"{self.software}, weights {self.sha256[:16]}"


@dataclass(frozen=True)
class Finding:
    """Scores of one frame."""

    frame: int
    """Number of the frame in its file, from 0."""
    probabilities: tuple[float, ...]
    """Probabilities of the classes, in their order, in [0, 1]."""
    calibrated: float
    """Probability of the positive class, in [0, 1]."""
    spread: float | None
    decision: str
    """The positive class, ``not <positive>``, or "" (no decision)."""
    abstained: str
    """Reason for abstaining, ``unusual`` or ``uncertain``; "" if there is a decision, or no threshold."""
    threshold: float | None
    threshold_origin: str
    ood: float | None
    """OOD score; images above 1 are out of distribution."""
    unusual: bool
    flags: tuple[str, ...]
    view_weight: float | None = None
    """Share of the frame in the result of its study or patient, in [0, 1]; None unless attention pools them."""


def finding_of(row: Mapping[str, Any], scorer: ScoringModel) -> Finding:
    """Convert a row with the columns of ``items.score_columns``.

    Raises:
        KeyError: a column is missing.
    """
    return Finding(
        frame=int(row["frame"]),
        probabilities=tuple(float(row[f"prob_{name}"]) for name in scorer.classes),
        calibrated=float(row[f"calibrated_{scorer.positive}"]),
        spread=_number(row[f"spread_{scorer.positive}"]),
        decision=str(row["decision"] or ""),
        abstained=str(row["abstained"] or ""),
        threshold=_number(row["threshold"]),
        threshold_origin=str(row["threshold_origin"] or ""),
        ood=_number(row["novelty"]),
        unusual=bool(row["unusual"]),
        flags=tuple(name for name in str(row["flags"] or "").split(";") if name),
        view_weight=_number(row.get(VIEW_WEIGHT)),
    )


def most_suspicious(findings: Sequence[Finding], most: int = MOST_FRAMES) -> list[Finding]:
    """Return the ``most`` findings with the highest calibrated probability (the earlier of equal ones), by frame."""
    ranked = sorted(findings, key=lambda one: (-one.calibrated, one.frame))
    return sorted(ranked[:most], key=lambda one: one.frame)


def shown_frames(rows: Sequence[Mapping[str, Any]], scorer: ScoringModel, most: int = MOST_FRAMES) -> list[int]:
    """Return the numbers of the frames that are drawn, whose saliency ``write_products`` needs."""
    return [one.frame for one in most_suspicious([finding_of(row, scorer) for row in rows], most)]


def _number(value: object) -> float | None:
    """Return a number, or None for an empty cell: None, "" or NaN."""
    if value is None or value == "":
        return None
    number = float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else None
