"""``study.json``: the state of a study and its table."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from usvit.estimate import Interval
from usvit.plain_data import Settings
from usvit.records.base import Count, FileRecord, Name, Number, Record, Text, key, optional

_MAX_RUNS = 100_000
Kind = Literal["cv", "train", "pretrain", "transfer", "test", "bench"]
"""Command that makes a run of a study."""
State = Literal["waiting", "running", "finished", "failed"]
Scale = Literal["paper", "tiny"]
EngineName = Literal["sequential", "ray"]
_STATE = "State of the run. With Ray, a run is 'waiting' until it ends."
_Seed = Annotated[int, Field(ge=0, lt=2**63)]


class StudyRun(Record):
    """One run of a study."""

    id: Annotated[str, Field(pattern=r"^[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,299}$")] = key(
        "Name of its folder among the runs of the study."
    )
    kind: Kind = key("Command that makes the run.")
    seed: _Seed
    needs: list[Name] = key("Runs that have to be finished before this one.")
    state: State = key(_STATE)
    attempts: Count = key(
        "Number of completed attempts; an attempt that ended because the study was killed does not count."
    )
    error: Annotated[str, Field(max_length=1_000_000)] | None = key(
        "Reason why the run failed, or why it waits; errors/<id>.txt has the details of a failure."
    )
    seconds: Annotated[Number, Field(ge=0)] | None = key("Duration since the run was last resumed, from run.json.")
    config: Settings = key(
        "The configuration, without default values for kinds other than cv and train. ${ID} stands for the run "
        "directory of another run."
    )


class StudyColumn(Record):
    """Column of the table."""

    name: Name
    figure: Name = key("Name of the figure in the results of its runs.")
    of: list[Name] | None = key("Steps whose runs have the figure; several are averaged. null: the only step.")
    minus: Name | None = optional("Step whose figure is subtracted.", null=True)
    title: Text
    percent: bool = key("true if the figure is shown in per cent.")
    tolerance: Number | None = key("Largest difference from the printed figure that counts as agreement.", minimum=0)


class PaperFigure(Record):
    """Figure of the paper."""

    printed: Text = key("Figure as the paper prints it, such as 86.7%, 81.8% ± 0.2% or 84% to 85%.")
    value: Number = key("The figure as a number; the middle of a printed range.")
    sd: Number | None = optional("The printed standard deviation.", null=True, minimum=0)


class StudyFigure(Record):
    """Our figure beside the paper's."""

    value: Number | None
    ci95: Interval | None
    method: Text | None
    n_groups: Count | None
    warning: Text | None
    reason: Text | None = key("Reason why there is no value.")
    paper: PaperFigure | None
    difference: Number | None = optional(
        "Our value minus the paper's, or minus the nearer end of a printed range; null if they are not compared.",
        null=True,
    )
    within: bool | None = key(
        "true if the difference is at most the column's tolerance, or, without a tolerance, if the paper's value lies "
        "in our 95 % interval; null if they are not compared."
    )
    within_reason: Text | None = key("Reason why they are not compared.")


class StudyTableRow(Record):
    """Row of the table."""

    name: Text
    group: Text | None = key("Heading above rows that belong together, such as a data set.")
    model: Name | None
    note: Text | None
    runs: dict[str, Name] = key("Step -> its run, for the first seed.")
    seed: _Seed
    state: State = key("State of the row: failed if one of its runs failed, finished if all are.")
    n_images: Count | None = key("Test images, if the row has a single run.", minimum=1)
    n_groups: Count | None = key(minimum=1)
    figures: dict[str, StudyFigure] = key("Column -> figure.")
    trained_on: Text | None = optional(
        "What the initial weights of its cross-validations were trained on, as their run.json states it."
    )


class Spread(Record):
    """Spread of one figure over seeds."""

    n: Count = key("Finished runs whose figure is known.")
    mean: Number | None
    sd: Number | None = key("Standard deviation with n - 1 in the denominator; not a confidence interval.", minimum=0)
    min: Number | None
    max: Number | None


class SpreadRow(Record):
    """Spread of a row's figures over seeds."""

    name: Text
    group: Text | None
    figures: dict[str, Spread]


class StudyCorrelation(Record):
    """Correlation of two columns, over all rows and seeds that have both figures."""

    columns: list[Name] = key(minItems=2, maxItems=2)
    n: Count = key("Number of pairs of figures.")
    pearson: Annotated[Number, Field(ge=-1, le=1)] | None = key(
        "Pearson's correlation coefficient; null with fewer than three pairs, or if a figure never varies."
    )
    spearman: Annotated[Number, Field(ge=-1, le=1)] | None = key("Spearman's rank correlation.")


class StudyPaper(Record):
    """The table that the study is compared with."""

    key: Name | None = optional("Short name of the paper.", null=True)
    source: Text
    table: Text
    protocol: Text


class StudyRecord(FileRecord):
    """State of a study and its table: the planned runs, the state of each run, and our figures beside the paper's.

    Titles, notes and tables are computed again whenever the study continues.
    """

    KIND: ClassVar[str] = "study"
    name: Name
    state: Literal["running", "finished", "partly"] = key(
        "partly: the study ended, but a run failed. running: the study is under way, or was stopped."
    )
    created: Name = key(format="date-time")
    command: Text = key("The command that began the study.")
    usvit_version: Name
    title: Text
    columns: list[StudyColumn] = key("Columns of the table.", minItems=1)
    seeds: list[_Seed] = key("Seeds of the study; the table shows the first.", minItems=1)
    other_dataset: Text | None = key(
        "Data set that replaced those of the study's file (--dataset); nothing is compared with the paper then."
    )
    scale: Scale = key("tiny: tiny networks on generated images, whose figures say nothing about the paper.")
    changed: list[Text] = key("Settings of the command line, for all runs.")
    paper: StudyPaper | None
    notes: list[Text]
    engine: EngineName | None = key("Engine of the last call that ran something; null before the first such call.")
    cpus: Count | None = key("Threads of each run.", minimum=1)
    runs: Annotated[list[StudyRun], Field(min_length=1, max_length=_MAX_RUNS)]
    table: Annotated[list[StudyTableRow], Field(max_length=_MAX_RUNS)]
    seed_spread: Annotated[list[SpreadRow], Field(max_length=_MAX_RUNS)] = key(
        "Spread over seeds; empty for a single seed."
    )
    correlations: list[StudyCorrelation] = key("Correlations of columns that the study's file names.")
    runs_folder: Text = key("Folder of the runs, relative to that of the study.")
    finished: Name | None = optional("End of the last call that ran something.", format="date-time")
    contamination: dict[str, Text] | None = optional(
        "Run -> warning, for runs that were tested on pre-training data of a foundation model.",
        minProperties=1,
    )
