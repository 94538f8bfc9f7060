"""Data that the command and the measuring processes exchange. Does not import torch."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from usvit.plain_data import Json, Settings
from usvit.records import Record
from usvit.upstream.records.bench import BenchModel, BenchResult, Machine, Mode, Precision, Status


@dataclass(frozen=True)
class Hardware:
    """Device and execution settings."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision = "auto"
    compile: bool = False
    channels_last: bool = False
    threads: int | None = None
    """CPU threads; None for torch's default."""
    memory_gb: float | None = None
    """Memory limit in GB; None for nearly all free memory."""


@dataclass(frozen=True)
class BenchmarkCase:
    """One measurement."""

    model: Settings
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
        """Seconds after which the process is ended, so that one slow step does not block the others.

        At least 30, because the first step of a process on a busy machine can wait for seconds.
        """
        return max(30, math.ceil(2 * self.seconds))

    @classmethod
    def from_json(cls, value: Json) -> "BenchmarkCase":
        return cls(**{**value, "hardware": Hardware(**value["hardware"])})

    def to_json(self) -> Json:
        return dataclasses.asdict(self)

    def result(self, status: Status, **measured: Any) -> BenchResult:
        """Return a result of this case; ``measured`` are further fields of ``BenchResult``."""
        return BenchResult(
            **{
                "model": self.model["name"],
                "mode": self.mode,
                "batch": self.batch,
                "image_size": self.model["image_size"],
                "precision": self.hardware.precision,
                "compiled": self.hardware.compile,
                "channels_last": self.hardware.channels_last,
                "status": status,
                **measured,
            }
        )


class Preflight(Record):
    """Result of ``usvit.upstream.bench.preflight.probe``: what is known before the first measurement."""

    machine: Machine
    versions: dict[str, str]
    models: list[BenchModel]
