"""Settings of the commands ``usvit models``: which networks are listed, and how one of them is described."""

from typing import Annotated

from pydantic import Field

from usvit.config.fields import Option
from usvit.config.sections import Section


class ModelFilter(Section):
    """Conditions of a list of networks; None: any."""

    family: Annotated[str | None, Option(metavar="F")] = None
    """One family, such as vit, hybrid or cnn."""
    search: Annotated[str | None, Option(metavar="TEXT")] = None
    """Part of the name of a network or of its weights."""
    source: Annotated[str | None, Option(metavar="S")] = None
    """Part of a paper's name, such as gheflati."""
    max_params: Annotated[float | None, Option(metavar="M")] = None
    """Maximum number of parameters, in millions."""


class ModelInfoSettings(Section):
    """Settings of the description of a network."""

    classes: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Number of classes."""
    image_size: Annotated[int | None, Field(ge=1, le=4096)] = None
    """Side of the image, in pixels. (default: the paper's)"""
    set_: Annotated[tuple[str, ...], Option(metavar="KEY=VALUE")] = ()
    """Exchange a part of a ViT, such as vit.stem=hmlp_bn; can be repeated."""
