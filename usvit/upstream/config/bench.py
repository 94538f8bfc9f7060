"""Settings of a measurement of speed in a study."""

from typing import Annotated, Any

from pydantic import Field

from usvit.config.sections import Section


class BenchModelConfig(Section):
    """Settings of the network of a measurement; the others of the section ``model`` are of trainings."""

    vit: dict[str, Any] = Field(default_factory=dict)
    """Parts of the shape of a ViT."""


class BenchConfig(Section):
    """Settings of a measurement: the arguments of ``usvit.benchmark``."""

    name: str
    """The network."""
    protocol: str = "fixed"
    mode: str | None = "infer"
    batch: Annotated[int, Field(ge=1)] | None = None
    max_batch: Annotated[int, Field(ge=1)] | None = None
    repeats: Annotated[int, Field(ge=1)] = 30
    seconds: Annotated[float, Field(gt=0)] = 60.0
    image_size: Annotated[int, Field(ge=32)] | None = None
    device: str = "auto"
    precision: str | None = None
    model: BenchModelConfig = BenchModelConfig()
