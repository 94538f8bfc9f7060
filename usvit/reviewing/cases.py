"""The cases of a study: images that are read together, with what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from usvit.data.io import Box
from usvit.scoring import ScoringItem


@dataclass(frozen=True)
class FoundImage:
    """An image of the source, before its file has been opened."""

    item: ScoringItem = field(repr=False)
    name: str = field(repr=False)
    """Id of the image in exported tables."""
    dataset: str = ""
    """Data set of the id; "" for images of a folder."""
    patient: str | None = field(default=None, repr=False)
    """Cluster of images that are not independent: the patient, or near-duplicates; None: what the file says."""
    unit: str | None = field(default=None, repr=False)
    """The case to which the image belongs; None: what the file says, or the image itself."""
    side: str | None = None
    spacing_mm: float | None = None
    truth: str = ""
    score: float | None = None
    """Probability of the positive class, in [0, 1]."""
    decision: str = ""
    masks: tuple[Path, ...] = field(default=(), repr=False)
    maps: tuple[tuple[str, Path], ...] = field(default=(), repr=False)
    """Name of the method, and its picture."""


@dataclass(frozen=True)
class ImageFacts:
    """What the file of an image says."""

    file_sha256: str
    n_frames: int
    width: int
    """Of the part that is shown, in pixels, as ``height``."""
    height: int
    spacing_mm: float | None
    frame_ms: float | None
    """Duration of a frame of a loop in milliseconds; None if it is not stated."""
    is_dicom: bool
    box: Box | None
    """Place of the part that is shown in the image of the file; None: the whole image."""
    side: str | None
    patient: str = field(repr=False)
    exam: str = field(repr=False)


@dataclass(frozen=True)
class ReviewImage:
    """An image of a case."""

    found: FoundImage
    facts: ImageFacts

    @property
    def label(self) -> str:
        """Caption: the side, which tells the reader nothing about the patient."""
        side = self.found.side or self.facts.side
        return f"{side} breast" if side else ""


@dataclass(frozen=True)
class StudyCase:
    """Images that are read and rated together."""

    name: str = field(repr=False)
    """Id of the case in exported tables."""
    patient: str = field(repr=False)
    images: tuple[ReviewImage, ...]
    truth: str
    """Reference class; "" if it is not known."""
    score: float | None
    """Probability of the positive class: the mean over the images."""
    decision: str


@dataclass(frozen=True)
class FoundCases:
    """All cases of a source."""

    cases: Sequence[StudyCase]
    positive: str
    threshold: float | None
    """Threshold of the model's decisions on its score; None if the class with the highest probability decides."""
    model: str
    """Name of the model; "" without one."""
