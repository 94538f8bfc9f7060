"""``model.json``: the metadata of one network."""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from usvit.estimate import Interval
from usvit.plain_data import Json, Settings
from usvit.records.base import (
    OPEN,
    Classes,
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
)
from usvit.records.seen_images import SeenCollectionRecord, SeenCopies, SeenHashes
from usvit.records.units import UnitRecord
from usvit.records.weights_origin import AdapterRecord, SourceRecord, TeacherRecord, WeightsRecord

_MAX_SIDE = 4096
"""Largest side of the network's input, in pixels."""
TUNE = ["full", "head", "attn", "ffn", "norm", "lora"]


class PreprocessingRecord(Record):
    """Preparation of an image for the network."""

    image_size: Annotated[int, Field(ge=1, le=_MAX_SIDE)] = key("Side of the square input, in pixels.")
    resize: Literal["squash", "pad"]
    mean: Annotated[list[Number], Field(min_length=3, max_length=3)]
    std: Annotated[list[Annotated[float, Field(gt=1e-6, le=1e6)]], Field(min_length=3, max_length=3)]
    crop: Literal["tissue", "whole"]


class ThresholdRecord(Record):
    """One operating point of the network."""

    rule: Text = key("The rule, such as 'sensitivity >= 0.9', 'Youden's index' or 'threshold 0.5'.")
    threshold: Number | None = key(
        "An image is positive if the probability of the positive class is at least this.", minimum=0, maximum=1
    )
    reason: Text | None = key("Reason why there is no threshold.")
    score: Name = key(
        "Probability that is compared with the threshold: with or without the temperature.",
        enum=["calibrated probability", "plain probability"],
    )
    chosen_on: Text = key("Description of the images on which the threshold was chosen.", minLength=1)
    n_images: Count
    n_groups: Count


class UnitThresholds(Record):
    """Operating points of units: patients, exams, breasts or lesions, whose probability is that of several images."""

    units: UnitRecord = key("The unit, and the inner validation images and units on which the thresholds were chosen.")
    thresholds: Annotated[list[ThresholdRecord], Field(max_length=10_000)] = key(
        "n_images counts units. A unit is positive if the pooled probability of its images is at least the threshold."
    )


class InDistribution(Record):
    """Rate at which the detector flags images like those of the training, measured on the test split."""

    part: Name = key(const="test")
    repeat: Count | None = optional("Number of the repeat, only in a repeated cross-validation.")
    n_images: Count
    n_groups: Count
    n_flagged: Count
    rate: Share | None
    ci95: Interval | None
    method: Name = key(const="clustered Wilson")
    sums: list[Count] = key(
        "Sums over groups of flagged^2, flagged * images and images^2, from which rates of several folds are joined.",
        minItems=3,
        maxItems=3,
    )


class OodView(Record):
    """One distance of the out-of-distribution detector."""

    method: Text = key(minLength=1)
    dimensions: Count = key(minimum=1)
    threshold: Annotated[float, Field(gt=0, le=1e15)] = key("Distance above which an image is out of distribution.")


class OodRecord(Record):
    """Out-of-distribution (OOD) detector, which recognises images unlike those of the training."""

    method: Text = key(minLength=1)
    file: Name = key(const="novelty.safetensors")
    sha256: Sha256
    views: dict[str, OodView] = key(minProperties=1, propertyNames={"enum": ["features", "picture"]})
    left_out: dict[str, Text] = key("View -> reason why it is not used.")
    statistics: Annotated[list[Name], Field(max_length=10_000)] = key(
        "Names of the statistics of the view 'picture', in their order."
    )
    n_train: Count
    n_val: Count
    n_val_groups: Count = key(
        "Patients, clusters of near-duplicates or single images among the inner validation images; the limit is "
        "computed from these groups.",
        minimum=1,
    )
    expected_rate: Share | None = key(
        "Upper bound of the probability that a random image of a new patient like those of the training is above the "
        "limit."
    )
    note: Text | None = key(
        "Statement of what is guaranteed if there are too few groups for a limit that 5 % of images exceed.",
        minLength=1,
    )
    in_distribution: InDistribution


class ExportedLicenses(Record):
    """Licences of the initial weights and of the training data."""

    first_weights: Text | None = key("Licence of the initial weights; null if none is stated.")
    data: dict[str, Text] = key("Data set -> licence.")


class ExportedRecord(Record):
    """Origin of exported weights."""

    usvit_version: Name
    versions: dict[str, Name] = key("Package -> version.")
    weights_sha256: Sha256 = key("SHA-256 of the exported model.safetensors.")
    parameters: Count
    paper: Text
    licenses: ExportedLicenses


class AttentionRecord(Record):
    """Attention over the views of a unit (Ilse et al. 2018, gated); its tensors are in a file beside the network."""

    file: Name = key(const="attention.safetensors")
    sha256: Sha256
    unit: Name = key("Unit whose views it weighs.", enum=("lesion", "breast", "exam", "patient"))
    fitted: Name = key(
        "``fitted`` on the outputs of the trained network, or ``trained`` with it.", enum=("fitted", "trained")
    )
    layers: Count | None = optional("Layers of the transformer before it; absent without one.")


class MeasuredRecord(Record):
    """Figures of the network on its test images, without intervals; the AUC has its class in the key."""

    model_config = OPEN
    images: Count
    groups: Count
    accuracy: Share | None
    balanced_accuracy: Share | None


_CLASSIFIER: Json = {"properties": {"classes": {"minItems": 2}, "positive_class": {"type": "string"}}}
_TRAINED = ["tune", "weights_sha256", "novelty", "fold"]
_BY_STAGE: Json = {
    "if": {"required": ["head"]},
    "then": _CLASSIFIER,
    "else": {
        "if": {"properties": {"stage": {"const": "pretrain"}}, "required": ["stage"]},
        "then": {
            "required": [*_TRAINED, "objective", "source"],
            "properties": {"positive_class": {"type": "null"}, "thresholds": {"maxItems": 0}},
        },
        "else": {"required": [*_TRAINED, "temperature_reason", "novelty_reason"], **_CLASSIFIER},
    },
}


class ModelMetadata(FileRecord):
    """Metadata of a trained network: everything that is needed to use the weights beside it.

    An export adds 'exported' and 'measured', and 'head' if the head is untrained.
    """

    model_config = ConfigDict(json_schema_extra={"x-open": True, **_BY_STAGE})
    KIND: ClassVar[str] = "model"
    stage: Name | None = optional(
        "Present only for initial weights (usvit pretrain and transfer), which do not classify ultrasound images.",
        const="pretrain",
    )
    objective: Name | None = optional(
        "Present only for initial weights: objective of their training (supervised, mae, ...), or method of transfer."
    )
    architecture: Name = key("Name of the network in 'usvit models list', or timm:<name>.")
    vit: Settings = key("Settings of a ViT that were changed.")
    timm: Name
    features: Settings | None = optional("Present only for a head on frozen features: which ones the head sees.")
    classes: Annotated[list[Name], Field(max_length=100_000)] = key(
        "Class names in the order of the outputs; may be empty for initial weights.", uniqueItems=True
    )
    positive_class: Name | None = key("One of 'classes'; null for initial weights.")
    preprocessing: PreprocessingRecord
    tune: Name | None = optional("Absent for an untrained head, as the other keys of a training.", enum=TUNE)
    adapter: AdapterRecord | None = optional("Present only if model.tune is lora.")
    weights_sha256: Sha256 | None = optional("SHA-256 of model.safetensors.")
    temperature: Annotated[float, Field(ge=1e-6, le=1e6)] | None = key(
        "Divisor of the logits before the softmax. If it is null, none was fitted, and 1 is used."
    )
    temperature_reason: Text | None = optional("Reason why there is no temperature.", null=True)
    thresholds: Annotated[list[ThresholdRecord], Field(max_length=10_000)]
    unit_thresholds: UnitThresholds | None = optional("Present if the run has a unit (usvit cv --unit).")
    head: Name | None = optional(const="untrained")
    novelty: OodRecord | None = optional(null=True)
    novelty_reason: Text | None = optional("Reason why there is no detector.", null=True)
    attention: AttentionRecord | None = optional("Present only if views are pooled by attention (loss.attention).")
    fold: Fold | None = optional()
    steps: Count | None = optional()
    best_step: Count | None = optional()
    recipe: Text | None = optional()
    seed: int | None = optional()
    source: SourceRecord | None = optional("Present only for initial weights: the images that they were trained on.")
    upstream: WeightsRecord
    data_licenses: dict[str, Text] = key("Data set -> licence.")
    grafit: Settings | None = optional("Settings of the projector, only for the objective grafit.")
    tokenizer: Settings | None = optional("Settings of the network, only for the objective tokenizer.")
    seen_sha256: SeenHashes
    seen_copies: SeenCopies
    seen_collections: Annotated[list[SeenCollectionRecord], Field(max_length=1000)] | None = optional(
        "Published lists of the data sets of foundation models that this network started from. A test "
        "on a listed data set is refused as contamination.",
        minItems=1,
    )
    intended_use: Text = key(minLength=1)
    learnt_from: list[TeacherRecord] | None = optional(
        "The teacher, the tokenizer or the source of fixed LayerScale values."
    )
    measured: MeasuredRecord | None = optional("Null if the network has not been tested.", null=True)
    exported: ExportedRecord | None = optional()


class ClassifierMetadata(ModelMetadata):
    """Metadata of a classifier."""

    classes: Classes
    positive_class: Name

    @model_validator(mode="after")
    def _names_its_positive_class(self) -> "ClassifierMetadata":
        if self.positive_class not in self.classes or len(set(self.classes)) != len(self.classes):
            raise ValueError(f"different classes, of which positive_class '{self.positive_class}' is one")
        return self


class ExportedMetadata(ClassifierMetadata):
    """Metadata of an exported classifier."""

    exported: ExportedRecord


class TestPreprocessing(Record):
    """Preparation of a test image for a classifier."""

    image_size: Count = key("Side of the square input, in pixels.", minimum=1)
    resize: Literal["short_side", "squash", "pad"]
    test_crop: Share = key("The image is resized to image_size / test_crop, and its central square is cut out.")
    interpolation: Literal["bicubic", "bilinear"]
    mean: list[Number]
    std: list[Number]
    origin: Text = key("Where these settings come from.")
