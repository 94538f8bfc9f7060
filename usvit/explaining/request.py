"""What the user asks ``usvit explain`` for."""

from dataclasses import dataclass
from pathlib import Path

from usvit.config.explaining import ExplainSettings
from usvit.progress import Progress


@dataclass(frozen=True)
class ExplainRequest:
    """The settings of an explanation, and where its images are."""

    settings: ExplainSettings
    roots: dict[str, Path]
    progress: Progress
