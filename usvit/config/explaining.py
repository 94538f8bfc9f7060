"""Settings of ``usvit explain``: the method, the network, and the images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from usvit.config.fields import Option, TextOrPath
from usvit.config.sections import Section

Method = Literal[
    "rollout", "attention", "gradcam", "occlusion", "distance", "residuals", "positions", "filters", "mixing"
]


def _texts(layers: Any) -> Any:
    """Return layers as texts: ``[1, -1]`` becomes ``("1", "-1")``."""
    return tuple(map(str, layers))


class ExplainSettings(Section):
    """Settings of an explanation."""

    method: Annotated[Method | None, Option(metavar="M")] = None
    """``rollout``, ``attention``, ``gradcam``, ``occlusion``, ``distance``, ``residuals``, ``positions``, ``filters``
    or ``mixing``. (default: ``rollout``, or the closest method that the network supports)"""
    layers: Annotated[
        tuple[str, ...],
        BeforeValidator(_texts, json_schema_input_type=Sequence[str | int]),
        Option("--layer", metavar="N"),
    ] = ()
    """Layer of attention (default: the last) or mixing (default: all): 1 for the first, -1 for the last, a name, or
    all. Can be repeated."""
    model: Annotated[str | None, Option(metavar="M")] = None
    """Network of ``weights``, instead of a run; alone: the hub's recommended weights."""
    weights: Annotated[TextOrPath, Option(metavar="W")] = None
    """Weights of ``model``: ``hub``, ``hub:UPSTREAM``, a file or a run."""
    source: Annotated[str | None, Option(metavar="NAME[:SPLIT]")] = None
    """Images for weights without test images: a name from 'usvit pretrain --list-sources'."""
    path: Annotated[TextOrPath, Option(metavar="DIR|URL")] = None
    """Folder of images, or address of shards, for sources that need one. The images of a folder are explained without
    labels unless ``source`` is ``folder``."""
    images: Annotated[int | None, Field(ge=1), Option(metavar="N")] = None
    """Number of images: of a run, from the classes in turn; of a source, drawn with a fixed seed. (default: 6; for
    distance and residuals: 128)"""
    image_ids: Annotated[tuple[str, ...], Option("--image-id", metavar="ID")] = ()
    """Explain this image; can be repeated. The ids of a source are its names of files."""
    errors: Annotated[int | None, Field(ge=1), Option(metavar="N")] = None
    """Explain the N most confident errors of a run of usvit cv or train."""
    target: Annotated[str | None, Option("--class", metavar="C")] = None
    """Class whose score to explain (gradcam, occlusion). (default: the predicted class)"""
    out: Annotated[Path | None, Option(metavar="DIR")] = None
    """Folder to write. (default: RUN/explain, or a folder in runs/)"""
    include_images: bool = False
    """Show the images even if their licence is unclear; keep the pictures to yourself."""

    @model_validator(mode="after")
    def _chooses_once(self) -> "ExplainSettings":
        if sum((self.images is not None, bool(self.image_ids), self.errors is not None)) > 1:
            raise ValueError("Pass only one of --images, --image-id and --errors: each selects the images to explain.")
        return self

    @property
    def chooses_images(self) -> bool:
        """Return whether the user has chosen images."""
        return self.images is not None or bool(self.image_ids) or self.errors is not None
