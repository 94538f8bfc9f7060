"""``bench.json`` of ``usvit bench``."""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from usvit.plain_data import Settings
from usvit.records.base import Count, FileRecord, Name, Number, Record, Text, key, optional

_Positive = Annotated[float, Field(gt=0, le=1e15)]
_Amount = Annotated[float, Field(ge=0, le=1e15)]
_Side = Annotated[int, Field(ge=1, le=10**12)]

Mode = Literal["train", "infer"]
Status = Literal["ok", "out_of_memory", "timeout", "crashed", "failed"]
Precision = Literal["auto", "fp32", "bf16"]
_Branches = Literal["sequential", "parallel"]
Search = Literal["none", "largest", "fastest", "batches"]


class ProtocolRecord(Record):
    """How a paper measures, or usvit's own way of measuring."""

    name: Literal["fixed", "deit", "resmlp", "deit3", "sweep", "latency"]
    says: Text
    source: Text
    hardware: Text = key("Hardware of the paper's own figures.")
    search: Search
    batch: _Side = key("Batch size, or the batch size at which the search begins.")
    max_batch: _Side
    repeats: _Side
    precision: Name = key("Precision of the protocol; settings and results contain the precision that was used.")
    modes: list[Mode]
    figures: Text | None = key("Description of the figures in models[].paper that were measured by this protocol.")


class BenchSettingsRecord(Record):
    """Settings of the call."""

    seconds: Number = key("After this time a measurement starts no further step; building and compiling do not count.")
    n_classes: _Side
    precisions: list[Precision]
    device: Literal["auto", "cpu", "cuda"]
    compile: bool
    channels_last: bool
    threads: int | None
    memory_gb: Number | None = key("Memory limit in units of 10^9 bytes.")
    model: Settings = key("Settings of the configuration's section 'model' that were given.")


class Machine(Record):
    """The machine."""

    device: Literal["cpu", "cuda"]
    name: Text
    cores: int | None
    threads: int
    free_memory_gb: Number | None = key(
        "Free memory of the GPU, or of the system or container, before the first measurement, in units of 10^9 bytes."
    )
    memory_gb: Number | None = optional("Memory of the GPU in units of 10^9 bytes.")
    system: Text
    tf32: dict[str, bool] | None = key(
        "true if fp32 on the GPU means TF32, in matrix products (matmul) and in convolutions (cudnn); null on a CPU.",
        required=["matmul", "cudnn"],
    )


class PaperSpeed(Record):
    """Speed that a paper prints, measured on other hardware."""

    table: Text
    image_size: Count
    protocol: Text
    images_per_second: Number


class BenchModel(Record):
    """One network."""

    name: Name
    vit: Settings = key("Parts of its shape that were changed.")
    architecture: Name
    params: _Side
    macs: _Side = key("Number of multiply-accumulate operations in the forward pass of one image.")
    paper: list[PaperSpeed]


class BenchResult(Record):
    """One measurement; a line of bench.csv."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "if": {"properties": {"status": {"const": "ok"}}},
            "then": {
                "properties": {
                    "reason": {"type": "null"},
                    "repeats": {"minimum": 1},
                    "images_per_second": {"type": "number"},
                    "seconds_median": {"type": "number"},
                }
            },
            "else": {
                "properties": {"reason": {"type": "string", "minLength": 1}, "images_per_second": {"type": "null"}}
            },
        },
    )
    model: Name
    mode: Mode
    batch: _Side
    image_size: _Side
    precision: Precision = key("'auto' only if the process ended before it could choose.")
    status: Status
    reason: Text | None = None
    branches: _Branches | None = Field(
        None, description="Execution of the branches of a parallel ViT in the protocol latency; otherwise null."
    )
    compiled: bool = False
    channels_last: bool = False
    images_per_second: _Positive | None = Field(None, description="batch / seconds_median.")
    seconds_median: _Positive | None = Field(None, description="Median time of one batch over the repeats, in seconds.")
    seconds_min: _Positive | None = None
    seconds_q1: _Positive | None = None
    seconds_q3: _Positive | None = None
    seconds_mean: _Positive | None = Field(
        None, description="Mean time of one batch in seconds, which the papers print."
    )
    repeats: Count = 0
    warmup: Count = Field(0, description="Number of steps before the first measured step.")
    compile_seconds: _Amount | None = Field(
        None, description="Time of the first step minus the median one, with --compile."
    )
    peak_memory_mib: _Amount | None = Field(None, description="Peak memory in units of 2^20 bytes.")
    memory: Text | None = Field(
        None, description="Method by which the peak was measured, or the reason why it was not."
    )
    load: Number | None = Field(None, description="Load average of the minute before the measurement.")
    reported: bool = Field(True, description="false for the steps of a search, whose result is in another row.")


class BenchRecord(FileRecord):
    """Measurements of 'usvit bench', as --json prints them. bench.csv contains 'results', one line for each entry."""

    KIND: ClassVar[str] = "bench"
    created: Name = key("Start of the first measurement: UTC, ISO 8601.")
    command: Text
    protocol: ProtocolRecord
    settings: BenchSettingsRecord
    machine: Machine
    versions: dict[str, Text]
    models: list[BenchModel] = key(minItems=1)
    results: list[BenchResult]
