"""Other networks that a training learns from: a teacher, a tokenizer."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Origin:
    """A network that a training learnt from: what it has seen, its pupil has seen (``usvit.data.seen.Trained``)."""

    role: str
    """``teacher`` or ``tokenizer``."""
    architecture: str
    weights_sha256: str | None
    """Of its file; None: it was never trained."""
    weights: dict[str, Any] | None = None
    """Where they are from, as ``Weights.describe`` says."""
    passport: dict[str, Any] | None = field(default=None, repr=False)
    """Where usvit trained it."""
    path: Path | None = None
    """Of its file."""

    @property
    def unknown_training(self) -> str | None:
        """What to call it where it was trained and no passport says on what."""
        if self.passport is not None or self.weights_sha256 is None:
            return None
        return f"the {self.role} {(self.weights or {}).get('name') or self.architecture}"

    def describe(self) -> dict[str, Any]:
        """For ``run.json`` and ``model.json``: without the path, which belongs to one machine."""
        return {
            "role": self.role,
            "architecture": self.architecture,
            "weights_sha256": self.weights_sha256,
            "source": (self.passport or {}).get("source"),
            "weights": self.weights,
        }
