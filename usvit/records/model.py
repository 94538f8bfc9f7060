"""``model.json``, the metadata of one network."""

from typing import Annotated, Any, Literal

from pydantic import Field

from usvit.records.base import Count, Fold, Name, Number, Record, Sha256, Text

MAX_SIDE = 4096
"""Of the input, in pixels."""


class Preprocessing(Record):
    """What is done to an image before the network."""

    image_size: Annotated[int, Field(ge=1, le=MAX_SIDE)]
    resize: Literal["squash", "pad"]
    mean: Annotated[list[Number], Field(min_length=3, max_length=3)]
    std: Annotated[list[Annotated[float, Field(gt=1e-6, le=1e6)]], Field(min_length=3, max_length=3)]
    crop: Name | None = None


class Threshold(Record):
    """One operating point of the network."""

    rule: Text
    threshold: Number | None
    chosen_on: Text
    reason: Text | None = None
    n_images: Count | None = None
    n_groups: Count | None = None


class InDistribution(Record):
    """How many images like those of the training are flagged."""

    n_images: Count
    n_flagged: Count


class Novelty(Record):
    """How images unlike those of the training are found."""

    file: Name | None = None
    sha256: Sha256 | None = None
    views: dict[str, dict[str, Any]] | None = None
    left_out: dict[str, Text] | None = None
    statistics: Annotated[list[Name], Field(max_length=10_000)] | None = None
    in_distribution: InDistribution | None = None


class ModelRecord(Record):
    """Of a fold's network, an upstream network, or an export; schema 1.0 had no thresholds and no novelty."""

    schema_version: Annotated[str, Field(pattern=r"^\d{1,4}\.\d{1,4}$")] | None = None
    architecture: Name | None = None
    vit: dict[str, Any] | None = None
    timm: Name | None = None
    classes: Annotated[list[Name], Field(max_length=100_000)] | None = None
    positive_class: Name | None = None
    preprocessing: Preprocessing | None = None
    tune: Name | None = None
    stage: Name | None = None
    weights_sha256: Sha256 | None = None
    temperature: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None
    temperature_reason: Text | None = None
    thresholds: (
        Annotated[list[Threshold], Field(max_length=10_000)] | Annotated[dict[str, Any], Field(max_length=0)] | None
    ) = None
    """An empty object in exports of schema 1.1 and before."""
    novelty: Novelty | None = None
    novelty_reason: Text | None = None
    fold: Fold | None = None
    steps: Count | None = None
    best_step: Count | None = None
    recipe: Text | None = None
    seed: int | None = None
    upstream: dict[str, Any] | None = None
    data_licenses: dict[str, Text] | None = None
    intended_use: Text | None = None
    seen_sha256: dict[str, list[Any]] | None = None
