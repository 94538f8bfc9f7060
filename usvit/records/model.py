"""``model.json``: the metadata of one network."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from usvit.records.base import (
    Count,
    FileRecord,
    Fold,
    Name,
    Number,
    Record,
    Sha256,
    Share,
    Text,
    key,
    optional,
    written,
)
from usvit.records.values import Interval

MAX_SIDE = 4096
"""Largest side of the network's input, in pixels."""
TUNE = ["full", "head", "attn", "ffn", "norm"]
SPLITS = ["train", "val", "upstream"]
_FILE = r"^seen-[0-9a-f]{16}\."


class PreprocessingRecord(Record):
    """Preparation of an image for the network."""

    image_size: Annotated[int, Field(ge=1, le=MAX_SIDE)] = key("Side of the square input, in pixels.")
    resize: Literal["squash", "pad"]
    mean: Annotated[list[Number], Field(min_length=3, max_length=3)]
    std: Annotated[list[Annotated[float, Field(gt=1e-6, le=1e6)]], Field(min_length=3, max_length=3)]
    crop: Name | None = written(enum=["tissue", "whole"])


class ThresholdRecord(Record):
    """One operating point of the network."""

    rule: Text = key("Such as 'sensitivity >= 0.9', 'Youden's index' or 'threshold 0.5'.")
    threshold: Number | None = key(
        "An image is positive if the probability of the positive class is at least this.", minimum=0, maximum=1
    )
    reason: Text | None = written("Why there is no threshold.", null=True)
    score: Name | None = written(
        "Which probability is compared: with or without the temperature.",
        enum=["calibrated probability", "plain probability"],
    )
    chosen_on: Text = key("Which images chose the threshold.", minLength=1)
    n_images: Count | None = written()
    n_groups: Count | None = written()


class InDistribution(Record):
    """Rate at which the detector flags images like those of the training, measured on the test split."""

    part: Name | None = written(const="test")
    n_images: Count
    repeat: Count | None = optional("Only of a repeated cross-validation.")
    n_groups: Count | None = written()
    n_flagged: Count
    rate: Share | None = written(null=True)
    ci95: Interval | None = written(null=True)
    method: Name | None = written(const="clustered Wilson")
    sums: list[Count] | None = written(
        "Sums over groups of flagged^2, flagged * images and images^2, from which rates of several folds are joined.",
        minItems=3,
        maxItems=3,
    )


class OodView(Record):
    """One distance of the out-of-distribution detector."""

    method: Text | None = written(minLength=1)
    dimensions: Count | None = written(minimum=1)
    threshold: Number | None = written("The distance at the limit.", exclusiveMinimum=0)


class OodRecord(Record):
    """Out-of-distribution (OOD) detector: how images unlike those of the training are recognised."""

    method: Text | None = written(minLength=1)
    file: Name | None = written(const="novelty.safetensors")
    sha256: Sha256 | None = written()
    views: dict[str, OodView] | None = written(minProperties=1, propertyNames={"enum": ["features", "picture"]})
    left_out: dict[str, Text] | None = written("View -> why it is not used.")
    statistics: Annotated[list[Name], Field(max_length=10_000)] | None = written(
        "Statistics of the view 'picture', in their order."
    )
    n_train: Count | None = written()
    n_val: Count | None = written()
    n_val_groups: Count | None = written(
        "Patients, clusters of near-duplicates or single images among the inner validation images; the limit is "
        "computed from these groups.",
        minimum=1,
    )
    expected_rate: Share | None = written(
        "Upper bound of the probability that a random image of a new patient like those of the training is above the "
        "limit.",
        null=True,
    )
    note: Text | None = written(
        "What is guaranteed if there are too few groups for a limit that 5 % of images exceed.", null=True, minLength=1
    )
    in_distribution: InDistribution | None = written()


class SeenFileRecord(Record):
    """File beside model.json that describes images which the network has seen."""

    file: Name | None = written()
    part: Name | None = written(enum=SPLITS)
    count: Count | None = written("Images with different pixels.", minimum=1)
    sha256: Sha256 | None = written("Of the file.")


class SeenGap(Record):
    """Images that the network has seen and that are not fully on record."""

    part: Name | None = written(enum=SPLITS)
    known: Name | None = written(
        "hashes: pixel hashes are on record, but no descriptions. nothing: it is unknown which images these were.",
        enum=["hashes", "nothing"],
    )
    what: Text | None = written("The images, or the weights that were trained on them.")


class SeenCopies(Record):
    """Near-duplicate descriptions of what the network has seen."""

    files: list[SeenFileRecord] | None = written(
        "Descriptions of the images of seen_sha256, about 1 kB each: a near-duplicate of one "
        "of these images is recognised by them.",
        allOf=[{"items": {"properties": {"file": {"pattern": _FILE + "copies$"}, "count": {"maximum": 200_000}}}}],
    )
    gaps: list[SeenGap] | None = written()


_HASHES: dict[str, Any] = {
    "required": SPLITS,
    "properties": {
        "files": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["file", "part", "count", "sha256"],
                "additionalProperties": False,
                "properties": {
                    "file": {"type": "string", "pattern": _FILE + "sha256$", "description": "Beside model.json."},
                    "part": {"enum": SPLITS},
                    "count": {"type": "integer", "minimum": 1, "description": "Hashes in it."},
                    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "Of the file."},
                },
            },
            "description": "Lists that are too long for JSON: 32 bytes a hash, sorted; absent if there are none.",
        }
    },
    "additionalProperties": {"type": "array", "items": {"type": "string"}},
}
_UPSTREAM_OR_CLASSIFIER: dict[str, Any] = {
    "if": {"properties": {"stage": {"const": "pretrain"}}, "required": ["stage"]},
    "then": {
        "required": ["objective", "source"],
        "properties": {"positive_class": {"type": "null"}, "thresholds": {"maxItems": 0}},
    },
    "else": {
        "required": ["temperature_reason", "novelty_reason"],
        "properties": {"classes": {"minItems": 2}, "positive_class": {"type": "string"}},
    },
}


class ModelMetadata(FileRecord):
    """Metadata of a trained network: everything that is needed to use the weights beside it.

    An export adds 'exported' and 'measured'.
    """

    model_config = ConfigDict(json_schema_extra={"x-open": True, **_UPSTREAM_OR_CLASSIFIER})
    KIND: ClassVar[str] = "model"
    VERSION: ClassVar[str] = "1.2"
    schema_version: Annotated[str, Field(pattern=r"^\d{1,4}\.\d{1,4}$")] | None = written()
    stage: Name | None = optional(
        "Only of usvit pretrain and transfer: initial weights, and no classifier of ultrasound images.",
        const="pretrain",
    )
    objective: Name | None = optional(
        "Only of initial weights: what they were trained for (supervised, mae, ...), or how they were transferred."
    )
    source: dict[str, Any] | None = optional("Only of initial weights: the images that they were trained on.")
    learnt_from: list[dict[str, Any]] | None = optional("Only of initial weights: the teacher or tokenizer.")
    architecture: Name | None = written("Name in 'usvit models list', or timm:<name>.")
    vit: dict[str, Any] | None = written("Parts of a ViT that were exchanged.")
    timm: Name | None = written()
    classes: Annotated[list[Name], Field(max_length=100_000)] | None = written(
        "In the order of the outputs; may be empty for initial weights.", uniqueItems=True
    )
    positive_class: Name | None = written("One of 'classes'; null for initial weights.", null=True)
    preprocessing: PreprocessingRecord | None = written()
    tune: Name | None = written(enum=TUNE)
    weights_sha256: Sha256 | None = written("Of model.safetensors.")
    temperature: Annotated[float, Field(ge=1e-6, le=1e6)] | None = written(
        "Divisor of the logits before the softmax; null: none was fitted, and 1 is used.", null=True
    )
    temperature_reason: Text | None = optional("Why there is no temperature.", null=True)
    thresholds: Annotated[list[ThresholdRecord], Field(max_length=10_000)] | None = written("Absent in version 1.0.")
    novelty: OodRecord | None = written("Absent in version 1.0.", null=True)
    novelty_reason: Text | None = optional("Why there is no detector.", null=True)
    fold: Fold | None = written()
    steps: Count | None = optional()
    best_step: Count | None = optional()
    recipe: Text | None = optional()
    seed: int | None = optional()
    upstream: dict[str, Any] | None = written("The initial weights.", required=["source"])
    data_licenses: dict[str, Text] | None = written("Data set -> licence.")
    seen_sha256: dict[str, list[Any]] | None = written("Pixel hashes of what the network has seen.", **_HASHES)
    seen_copies: SeenCopies | None = written(
        "Since schema 1.2. Without it, it is unknown whether a near-duplicate was seen."
    )
    intended_use: Text | None = written(minLength=1)
