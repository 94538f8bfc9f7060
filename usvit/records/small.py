"""The smaller records: ``explain.json``, ``job.json`` and ``summary.json`` of scoring, results of upstream runs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from usvit.records.base import Classes, Count, Fold, Name, Number, Record, Sha256, Text
from usvit.records.metrics import Value


class ExplainedImage(Record):
    """One picture of ``usvit explain``."""

    dataset: Name | None = None
    image_id: Name | None = None
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}\.png$")] | None = None
    fold: Fold | None = None
    shows_image: bool | None = None
    blank: bool | None = None


class AgainstMasks(Record):
    """Agreement of the maps with lesion masks."""

    n_images: Count
    n_groups: Count
    pointing: Value
    centre: Value
    share: Value
    area: Value


class Explanation(Record):
    """What one method made."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}\.png$")] | None = None
    images: Annotated[list[ExplainedImage], Field(max_length=100_000)] | None = None
    against_masks: AgainstMasks | None = None


class ExplainRecord(Record):
    """``explain.json``."""

    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")]
    run: Text
    model: Text | None = None
    classes: list[Name] | None = None
    weights_sha256: dict[str, Sha256]
    methods: dict[Name, Explanation]


class JobRecord(Record):
    """``job.json`` of a scoring job."""

    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")] | None = None
    state: Literal["running", "finished"] | None = None
    started: Name | None = None
    identity: dict[str, Any] | None = None


class Table(Record):
    """A table of a scored set."""

    rows: Count
    sha256: Sha256


class Threshold(Record):
    """The operating point of the scores."""

    value: Number | None
    origin: Text


class Scorer(Record):
    """The networks that scored."""

    sha256: Sha256
    members: list[dict[str, Any]] | None = None


class SummaryRecord(Record):
    """``summary.json`` of a scored set."""

    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")] | None = None
    classes: Classes | None = None
    positive_class: Name | None = None
    counts: dict[str, Count] | None = None
    threshold: Threshold | None = None
    model: Scorer | None = None
    files: dict[str, Table] | None = None
    key_fingerprint: Name | None = None


class UpstreamRecord(Record):
    """``pretrain.json`` or ``transfer.json``."""

    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")] | None = None
    kept: list[dict[str, Any]] | None = None
