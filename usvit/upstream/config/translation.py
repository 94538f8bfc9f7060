"""Settings of ``usvit study translation``."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from usvit.config.fields import Option
from usvit.config.scoring import Device
from usvit.config.sections import Section

TranslatorName = Literal["resmlp", "transformer"]


class TranslationSettings(Section):
    """Settings of a comparison of translators."""

    scale: Literal["paper", "tiny"] = "paper"
    """``paper``: the sizes (ResMLP of 6 and of 12 layers) and the optimizer of the thesis, on your own pairs; ``tiny``:
    small networks on generated pairs, in a minute; its figures say nothing about the paper."""
    pairs: Annotated[Path | None, Option(metavar="FILE")] = None
    """Training pairs: text with a source, a tab and its translation in each line. (with ``tiny``: generated)"""
    test: Annotated[Path | None, Option(metavar="FILE")] = None
    """Test pairs in the same form. (with ``tiny``: generated)"""
    steps: Annotated[int | None, Field(ge=1)] = None
    """Steps of each training. (default: 300000, or 600 with ``tiny``)"""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of weights, order, dropout and generated pairs."""
    device: Device = "auto"
    """``auto``, ``cpu`` or ``cuda``."""
    out: Path | None = None
    """Folder of the result. (default: studies/translation, or studies/translation-tiny)"""
