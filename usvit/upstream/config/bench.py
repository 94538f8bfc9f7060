"""Settings of measurements of speed and memory."""

from typing import Annotated, Literal

from pydantic import Field

from usvit.config.fields import Option
from usvit.config.scoring import Device
from usvit.config.sections import Section
from usvit.plain_data import Settings

Measured = Literal["train", "infer", "both"]


class MeasurementSettings(Section):
    """What a measurement of ``usvit bench`` or of a study is."""

    protocol: Annotated[str, Option(metavar="NAME")] = "fixed"
    """``fixed``: one batch size (32, or ``batch``). Protocols of the papers: ``deit`` (largest batch that fits, 30
    runs), ``resmlp`` (batch size 32), ``deit3`` (batch size 256, mixed precision), ``sweep`` (doubles the batch size
    while speed grows), ``latency`` (batch sizes 1 to 64; parallel branches sequentially and at once)."""
    mode: Measured | None = None
    """Measure ``train``, ``infer`` or ``both``. (default: ``infer``; ``both`` with ``fixed``)"""
    batch: Annotated[int | None, Field(ge=1)] = None
    """Batch size, or first batch size of a search. (default: the protocol's)"""
    max_batch: Annotated[int | None, Field(ge=1)] = None
    """Largest batch size of a search. (default: 4096; ``latency``: 64)"""
    repeats: Annotated[int, Field(ge=1)] = 30
    """Number of timed steps; the median is reported."""
    seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time limit of each measurement, without building and compiling the model."""
    image_size: Annotated[int | None, Field(ge=1)] = None
    """Side of the input in pixels. (default: the network's)"""
    device: Device = "auto"
    """Device that is measured: ``auto``, ``cpu`` or ``cuda``."""
    precision: Literal["auto", "fp32", "bf16", "both"] | None = None
    """``auto``, ``fp32``, ``bf16`` or ``both``. (default: the protocol's: ``deit3`` bf16, ``fixed`` auto, else fp32)"""


class BenchmarkSettings(MeasurementSettings):
    """Settings of ``usvit bench``."""

    classes: Annotated[int, Field(ge=1)] = 1000
    """Number of classes; 1000 in the papers."""
    compile: bool = False
    """Use ``torch.compile``; its time is reported separately."""
    channels_last: bool = False
    """Use the memory layout NHWC."""
    threads: Annotated[int | None, Field(ge=1)] = None
    """Number of CPU threads. (default: PyTorch's choice)"""
    memory_gb: Annotated[float | None, Field(ge=0.1)] = None
    """Limit of the memory; 16 simulates a GPU with 16 GB. (default: nearly all free memory)"""


class BenchModelConfig(Section):
    """Settings of the network of a measurement; the others of the section ``model`` are of trainings."""

    vit: Settings = Field(default_factory=dict)
    """Parts of the shape of a ViT."""


class _Named(Section):
    name: str
    """The network."""


class BenchConfig(MeasurementSettings, _Named):
    """Settings of a measurement in a study."""

    mode: Measured | None = "infer"
    """Measure ``train``, ``infer`` or ``both``."""
    image_size: Annotated[int | None, Field(ge=32)] = None
    """Side of the input in pixels. (default: the network's)"""
    model: BenchModelConfig = BenchModelConfig()
