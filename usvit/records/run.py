"""``run.json``: what a run was told to do, with what, and what its folds came to."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationInfo, field_validator

from usvit.errors import UsvitError
from usvit.records.base import Classes, Count, Fold, Name, Number, Record, Sha256, Text, read_record

MAX_FOLDS = 10_000
MAX_CLASSES = 100_000
"""Of a collection for pre-training: ImageNet-21k has 21,841."""
UPSTREAM = ("pretrain", "transfer")
"""Runs that make or judge first weights."""


class Folds(Record):
    """How the images were divided."""

    n: Annotated[int, Field(ge=1, le=MAX_FOLDS)] | None = None
    sha256: Sha256 | None = None
    scheme: Name | None = None
    unit: Name | None = None
    leaking_groups: Count | None = None
    file: Text | None = None


class Data(Record):
    """Which images."""

    datasets: Annotated[list[Name], Field(max_length=1000)] | None = None
    classes: Annotated[list[Name], Field(max_length=MAX_CLASSES)] | None = None
    positive_class: Name | None = None
    n_images: Count | None = None
    n_groups: Count | None = None
    class_counts: dict[str, Count] | None = None
    grouping: dict[str, Count] | None = None
    manifest_sha256: Sha256 | None = None
    excluded: list[dict[str, Any]] | None = None
    skipped: list[dict[str, Any]] | None = None


class Result(Record):
    """What one fold came to."""

    fold: Fold | None = None
    steps: Count | None = None
    best_step: Count | None = None
    seconds: Annotated[Number, Field(ge=0)] | None = None
    images_per_second: Annotated[Number, Field(ge=0)] | None = None


class Weights(Record):
    """The first weights."""

    source: Name | None = None
    name: Text | None = None
    sha256: Sha256 | None = None
    license: Text | None = None
    upstream: Text | None = None
    pretrained_by: Text | None = None


class Model(Record):
    """The network."""

    name: Name | None = None
    vit: dict[str, Any] | None = None
    timm: Name | None = None
    params: Count | None = None
    trainable: Count | None = None
    weights: Weights | None = None


class Device(Record):
    """Where it was trained."""

    type: Name | None = None
    name: Text | None = None
    precision: Name | None = None
    threads: Count | None = None


class Config(Record):
    """Sections that the report reads; ``usvit.config`` checks a configuration that is run."""

    recipe: Text | None = None
    seed: int | None = None
    data: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    loss: dict[str, Any] | None = None
    optim: dict[str, Any] | None = None
    train: dict[str, Any] | None = None
    split: dict[str, Any] | None = None
    input: dict[str, Any] | None = None


class RunRecord(Record):
    """The whole file."""

    kind: Literal["cv", "train", "pretrain", "transfer"] | None = None
    name: Name | None = None
    command: Text | None = None
    config: Config | None = None
    config_sha256: Sha256 | None = None
    seed: int | None = None
    device: Device | None = None
    data: Data | None = None
    folds: Folds | None = None
    model: Model | None = None
    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")] | None = None
    state: Literal["running", "finished"] | None = None
    created: Name | None = None
    finished: Name | None = None
    usvit_version: Name | None = None
    versions: dict[str, Name] | None = None
    results: Annotated[list[Result], Field(max_length=MAX_FOLDS)] | None = None
    seconds: Annotated[Number, Field(ge=0)] | None = None
    files: dict[str, Sha256] | None = None
    """Name -> SHA-256 of the files of results, since schema 1.1."""

    @field_validator("data")
    @classmethod
    def _classes_of_a_classifier(cls, data: Data | None, info: ValidationInfo) -> Data | None:
        """A pre-training has as many classes as its collection, and none where it needs no labels."""
        if data is not None and data.classes is not None and info.data.get("kind") not in UPSTREAM:
            TypeAdapter(Classes).validate_python(data.classes)
        return data


def read_run_record(run: Path, hint: str = "") -> dict[str, Any]:
    """The content of a run's ``run.json``.

    Raises:
        UsvitError: it is absent or damaged; or it is of a later major version.
    """
    if not (run / "run.json").exists():
        raise UsvitError(f"{run} is no run directory: it has no run.json. {hint}".rstrip())
    return read_record(run / "run.json", RunRecord, hint)
