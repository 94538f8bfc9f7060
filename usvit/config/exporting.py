"""Settings of exports: the network, and what the folder contains."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from usvit.config.fields import Option, TextOrPath
from usvit.config.sections import Section


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names; a single text lists them with commas."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    return tuple(name.strip() for name in texts[0].split(",")) if len(texts) == 1 else texts


class ExportSettings(Section):
    """Settings of an export; all but ``descriptions`` apply to a network that is named, not to a run."""

    weights: Annotated[TextOrPath, Option(metavar="W")] = None
    """With a name: ``hub``, ``scratch``, a file or a run. (default: ``hub``)"""
    classes: Annotated[
        tuple[str, ...],
        BeforeValidator(_names, json_schema_input_type=str | Sequence[str]),
        Option(metavar="A,B[,C]"),
    ] = ()
    """With a name: the classes in the order of the outputs, such as ``benign,malignant``."""
    positive: Annotated[str | None, Option(metavar="C")] = None
    """With a name: one of ``classes``. (default: ``malignant``, or the last)"""
    image_size: Annotated[int | None, Field(ge=1)] = None
    """With a name: side of the input, in pixels. (default: 224)"""
    descriptions: bool = True
    """Include descriptions that identify near-duplicates of the training images; without them, only identical pixels
    are recognised. A rough sketch of an image can be reconstructed from them."""
