"""What the user asks ``usvit explain`` for."""

from dataclasses import dataclass
from pathlib import Path

from usvit.progress import Progress


@dataclass(frozen=True)
class ExplainRequest:
    """The arguments of ``explain``, checked as far as that needs no network; see there."""

    method: str | None
    layers: tuple[str, ...]
    images: int | None
    image_ids: tuple[str, ...]
    errors: int | None
    target: str | None
    source: str | None
    path: str | None
    out: Path | None
    include_images: bool
    roots: dict[str, Path]
    progress: Progress
