"""``study.json``: the state of a study and its table."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from usvit.records.base import Count, FileRecord, Name, Number, Record, Text, Version, key, nullable, optional, written
from usvit.records.values import Interval

MAX_RUNS = 100_000
State = Literal["waiting", "running", "finished", "failed"]
_STATE = "State of the run. With Ray, a run is 'waiting' until it ends."
_Seed = Annotated[int, Field(ge=0, lt=2**63)]


class CellRecord(Record):
    """Place of a run in the grid."""

    dataset: Name
    model: Name
    recipe: Name
    variant: Name | None


class StudyRun(CellRecord):
    """One run of a study."""

    id: Annotated[str, Field(pattern=r"^[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,299}$")] = key(
        "Its run directory is runs/<id>, so the id must be a plain file name."
    )
    seed: _Seed
    state: State = key(_STATE)
    attempts: Count = key(
        "Number of completed attempts; an attempt that ended because the study was killed does not count."
    )
    error: Annotated[str, Field(max_length=1_000_000)] | None = key(
        "Reason why the run failed; errors/<id>.txt has the details."
    )
    seconds: Annotated[Number, Field(ge=0)] | None = key("Duration since the run was last resumed, from run.json.")
    config: dict[str, Any] = key("The complete configuration.")


class PaperFigure(Record):
    """Figure of the paper."""

    printed: Text = written("Figure as the paper prints it, such as 86.7%.", empty=str)
    value: Number | None = written()


class StudyFigure(Record):
    """Our figure beside the paper's."""

    value: Number | None = nullable()
    ci95: Interval | None = nullable()
    method: Text | None = nullable()
    n_groups: Count | None = nullable()
    warning: Text | None = nullable()
    reason: Text | None = nullable("Reason why there is no value.")
    paper: PaperFigure | None = nullable()
    within: bool | None = nullable(
        "true if the paper's value lies in our 95 % interval; null if they are not compared."
    )
    within_reason: Text | None = nullable("Reason why they are not compared.")


class StudyTableRow(CellRecord):
    """Row of the table."""

    printed_as: Text | None = nullable("Name of the model in the paper.")
    run: Name | None = written()
    seed: _Seed | None = written()
    state: State | None = written(_STATE)
    n_images: Count | None = nullable(minimum=1)
    n_groups: Count | None = nullable(minimum=1)
    figures: dict[str, StudyFigure] = written(empty=dict)


class Spread(Record):
    """Spread of one figure over seeds."""

    n: Count | None = written("Finished runs whose figure is known.")
    mean: Number | None = nullable()
    sd: Number | None = nullable(
        "Standard deviation with n - 1 in the denominator; not a confidence interval.", minimum=0
    )
    min: Number | None = nullable()
    max: Number | None = nullable()


class SpreadRow(CellRecord):
    """Spread of a cell's figures over seeds."""

    figures: dict[str, Spread] = written(empty=dict)


class StudyPaper(Record):
    """The table that the study is compared with."""

    source: Text = written(empty=str)
    table: Text = written(empty=str)
    protocol: Text = written(empty=str)


class StudyRecord(FileRecord):
    """State of a study and its table: the planned runs, the state of each run, and our figures beside the paper's.

    Titles, notes and tables are computed again whenever the study continues.
    """

    KIND: ClassVar[str] = "study"
    VERSION: ClassVar[str] = "1.0"
    schema_version: Version
    name: Name
    title: Text = written(empty=str)
    protocol: Literal["cv", "train"]
    state: Literal["running", "finished", "partly"] = key(
        "partly: the study ended, but a run failed. running: the study is under way, or was stopped."
    )
    created: Name = key(format="date-time")
    finished: Name | None = optional("End of the last call that ran something.", format="date-time")
    command: Text | None = written("The command that began the study.")
    usvit_version: Name | None = written()
    figures: list[Name] = written(
        "Names within 'pooled' of metrics.json; sensitivity.positive is that of the positive class.",
        empty=list,
        minItems=1,
    )
    seeds: list[_Seed] = written("Seeds of the study; the table shows the first.", empty=list, minItems=1)
    other_dataset: Text | None = written(
        "Data set that replaced those of the study's file (--dataset); nothing is compared with the paper then.",
        null=True,
    )
    changed: list[Text] = written("Settings of the command line, for all runs.", empty=list)
    paper: StudyPaper | None = written(null=True)
    notes: list[Text] = written(empty=list)
    engine: Literal["sequential", "ray"] | None = written(
        "Engine of the last call that ran something; null before the first such call.", null=True
    )
    cpus: Count | None = written("Threads of each run.", null=True, minimum=1)
    runs: Annotated[list[StudyRun], Field(min_length=1, max_length=MAX_RUNS)]
    table: Annotated[list[StudyTableRow], Field(max_length=MAX_RUNS)]
    seed_spread: Annotated[list[SpreadRow], Field(max_length=MAX_RUNS)] = key(
        "Spread over seeds; empty for a single seed."
    )
