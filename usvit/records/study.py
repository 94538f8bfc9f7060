"""``study.json``, the state of a study: as ``docs/reference/study.schema.json``, as far as it is read back."""

from typing import Annotated, Any, Literal

from pydantic import Field

from usvit.records.base import Count, Name, Number, Record

MAX_RUNS = 100_000


class StudyRun(Record):
    """One run of a study."""

    id: Annotated[str, Field(pattern=r"^[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,299}$")]
    """Also the name of its folder, so it leads nowhere else."""
    dataset: Name
    model: Name
    recipe: Name
    variant: Name | None
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    state: Literal["waiting", "running", "finished", "failed"]
    attempts: Count
    error: Annotated[str, Field(max_length=1_000_000)] | None
    seconds: Annotated[Number, Field(ge=0)] | None
    config: dict[str, Any]


class StudyRecord(Record):
    """The whole file; titles, notes and the tables are made again whenever the study goes on."""

    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")]
    name: Name
    protocol: Literal["cv", "train"]
    state: Literal["running", "finished", "partly"]
    created: Name
    runs: Annotated[list[StudyRun], Field(min_length=1, max_length=MAX_RUNS)]
    table: Annotated[list[dict[str, Any]], Field(max_length=MAX_RUNS)]
    seed_spread: Annotated[list[dict[str, Any]], Field(max_length=MAX_RUNS)]
