"""Another network that a training learns from, as its records describe it."""

from dataclasses import dataclass, field
from pathlib import Path

from usvit.models.foundation import foundation_models
from usvit.records import ModelMetadata, SeenCollectionRecord, WeightsRecord
from usvit.records.weights_origin import TeacherRecord


@dataclass(frozen=True)
class UpstreamModel:
    """Another network that a training learns from: a teacher, a tokenizer, or the source of fixed LayerScale values.

    The images that it was trained on count as seen by the trained network, too
    (``usvit.data.splits.leakage.Trained``).
    """

    role: str
    """``teacher``, ``tokenizer`` or ``source of LayerScale``."""
    architecture: str
    weights_sha256: str | None
    """Hash of its file; None if it was never trained."""
    weights: WeightsRecord | None = None
    """Origin of its weights."""
    metadata: ModelMetadata | None = field(default=None, repr=False)
    """Its model metadata, if usvit trained it."""
    path: Path | None = None
    """Its file."""

    @property
    def unknown_training(self) -> str | None:
        """Description for messages if this network was trained but its metadata does not list the images; else None."""
        if self.metadata is not None or self.weights_sha256 is None:
            return None
        return f"the {self.role} {(self.weights and self.weights.name) or self.architecture}"

    @property
    def collections(self) -> tuple[SeenCollectionRecord, ...]:
        """Published lists of its data sets, if its weights are those of a foundation model."""
        entry = foundation_models().get(str(self.weights and self.weights.upstream))
        return () if self.metadata is not None or entry is None else (entry.seen_collection(),)

    def record(self) -> TeacherRecord:
        """Return the entry of ``run.json`` and ``model.json``, without the path, which is valid on one machine."""
        return TeacherRecord(
            role=self.role,
            architecture=self.architecture,
            weights_sha256=self.weights_sha256,
            source=None if self.metadata is None else self.metadata.source,
            weights=self.weights,
        )
