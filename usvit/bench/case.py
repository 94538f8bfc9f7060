"""Data that the command and the measuring processes exchange. Does not import torch."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

Mode = Literal["train", "infer"]
Status = Literal["ok", "out_of_memory", "timeout", "crashed", "failed"]


@dataclass(frozen=True)
class Hardware:
    """Device and execution settings."""

    device: str = "auto"
    precision: str = "auto"
    compile: bool = False
    channels_last: bool = False
    threads: int | None = None
    """CPU threads; None for torch's default."""
    memory_gb: float | None = None
    """Memory limit in GB; None for nearly all free memory."""


@dataclass(frozen=True)
class BenchmarkCase:
    """One measurement."""

    model: dict[str, Any]
    """A dumped ``ModelConfig``."""
    mode: Mode
    batch: int
    hardware: Hardware = field(default_factory=Hardware)
    n_classes: int = 1000
    repeats: int = 30
    seconds: float = 60.0
    """Time limit after which no further step starts, without building and compiling."""
    branches: bool = False
    """True to time parallel branches both at once and sequentially, in turns."""

    @property
    def hard_limit(self) -> int:
        """Seconds after which the process is ended, so that one slow step does not block the others."""
        return math.ceil(2 * self.seconds)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "BenchmarkCase":
        return cls(**{**value, "hardware": Hardware(**value["hardware"])})

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class BenchmarkRow:
    """Result of a measurement: one line of ``bench.csv``."""

    model: str
    mode: Mode
    batch: int
    image_size: int
    precision: str
    status: Status
    reason: str | None = None
    """Reason if there is no result, otherwise None."""
    branches: Literal["sequential", "parallel"] | None = None
    compiled: bool = False
    channels_last: bool = False
    images_per_second: float | None = None
    """``batch`` divided by the median time."""
    seconds_median: float | None = None
    seconds_min: float | None = None
    seconds_q1: float | None = None
    seconds_q3: float | None = None
    seconds_mean: float | None = None
    """Mean seconds per batch, over the repeats."""
    repeats: int = 0
    warmup: int = 0
    """Number of steps before the first timed one."""
    compile_seconds: float | None = None
    """Time of the first step minus the median time."""
    peak_memory_mib: float | None = None
    memory: str | None = None
    """Method by which the peak memory was measured, or the reason why it was not."""
    load: float | None = None
    """The system's load average of the last minute; other processes slow the measurement."""
    reported: bool = True
    """False for the steps of a search, whose result is another row."""
