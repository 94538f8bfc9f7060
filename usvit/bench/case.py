"""What passes between the command and the processes that measure: plain data, no torch."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

Mode = Literal["train", "infer"]
Status = Literal["ok", "out_of_memory", "timeout", "crashed", "failed"]


@dataclass(frozen=True)
class Hardware:
    """Where to compute, and how."""

    device: str = "auto"
    precision: str = "auto"
    compile: bool = False
    channels_last: bool = False
    threads: int | None = None
    """Of the CPU; None: torch's own choice."""
    memory_gb: float | None = None
    """The most that may be used, in GB; None: nearly all that is free."""


@dataclass(frozen=True)
class Case:
    """One measurement."""

    model: dict[str, Any]
    """A dumped ``ModelConfig``."""
    mode: Mode
    batch: int
    hardware: Hardware = field(default_factory=Hardware)
    n_classes: int = 1000
    repeats: int = 30
    seconds: float = 60.0
    """After which no other step is begun; building and compiling do not count."""
    branches: bool = False
    """Also with the branches of each layer computed at once, in turns with one after the other."""

    @property
    def hard_limit(self) -> int:
        """Seconds after which the process is ended: a step that takes long at the end must not cost all others."""
        return math.ceil(2 * self.seconds)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Case":
        return cls(**{**value, "hardware": Hardware(**value["hardware"])})

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Row:
    """A measurement's result: one line of ``bench.csv``."""

    model: str
    mode: Mode
    batch: int
    image_size: int
    precision: str
    status: Status
    reason: str | None = None
    """Why there is no number; None where there is one."""
    branches: Literal["sequential", "parallel"] | None = None
    compiled: bool = False
    channels_last: bool = False
    images_per_second: float | None = None
    """``batch`` over the median time."""
    seconds_median: float | None = None
    seconds_min: float | None = None
    seconds_q1: float | None = None
    seconds_q3: float | None = None
    seconds_mean: float | None = None
    """Of one batch, over the repeats."""
    repeats: int = 0
    warmup: int = 0
    """Steps before the first that counts."""
    compile_seconds: float | None = None
    """The first step less the median one."""
    peak_memory_mib: float | None = None
    memory: str | None = None
    """How the peak was taken, or why it was not."""
    load: float | None = None
    """Processes that wanted a core, the minute before (1: ours alone); other work slows both."""
    reported: bool = True
    """False for the steps of a search, whose outcome is another row."""
