"""``pretrain.json`` and ``transfer.json``: results of runs that train or evaluate initial weights."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from usvit.estimate import Estimate
from usvit.records.base import (
    Classes,
    Count,
    FileRecord,
    Fold,
    Name,
    Number,
    Record,
    Share,
    Text,
    Version,
    nullable,
    optional,
    written,
)
from usvit.records.model import TUNE, ContaminationRecord


class KeptWeights(Record):
    """Row of history.csv of the step whose weights were kept.

    Further keys are figures of one objective, such as the share of the tokenizer's codes that are used.
    """

    model_config = ConfigDict(json_schema_extra={"x-open": {"type": ["number", "null"]}})
    fold: Fold | None = written()
    step: Count | None = written(minimum=1)
    epoch: Number | None = written(minimum=0)
    lr: float | None = written("Learning rate; finite, but without an upper limit.", minimum=0)
    train_loss: float | None = written(
        "Mean loss since the previous evaluation; may be negative for Grafit.", null=True
    )
    val_loss: float | None = written("Null without validation images.", null=True)
    val_accuracy: Share | None = written(
        "Null without validation images, or if the objective has no accuracy.", null=True
    )
    val_auc: Number | None = written("Always null here; only cross-validations have a value.", null=True, const=None)
    images_per_second: Number | None = optional(null=True, minimum=0)


class PretrainRecord(FileRecord):
    """Figures of the weights that a pre-training kept."""

    KIND: ClassVar[str] = "pretrain"
    VERSION: ClassVar[str] = "1.0"
    schema_version: Version | None = written()
    kept: list[KeptWeights] = written("One entry for each fold.", empty=list, minItems=1)


class TransferImages(Record):
    """Images of a transfer."""

    source: Text | None = written()
    classes: Classes = written(empty=list)
    chosen_on: Text | None = written("Description of the validation images, which are never the test images.")
    n_train: Count | None = written(minimum=1)
    n_val: Count = written(empty=int)
    n_test: Count | None = written("Number of test images, without those that were dropped.", minimum=1)


class Dropped(Record):
    """Test images that were left out."""

    seen_by_weights: Count | None = nullable(
        "Test images that the initial weights were trained on, and others of their groups; null if not examined."
    )
    in_training: Count | None = nullable("Test images with the same pixels as a training or validation image.")


class TransferEstimate(Estimate):
    """Figure with its 95 % interval."""

    covers: Text | None = optional(
        "Explanation of what the interval of a mean over draws covers, and what it does not."
    )
    sd: Number | None = optional("Standard deviation of the draws, for a mean over draws.", null=True, minimum=0)


class RetrievalIntervals(Record):
    """Intervals of the retrieval figures: queries are resampled, those of a patient together; the keys are fixed."""

    mean_average_precision: TransferEstimate | None = optional()
    map_conditioned: TransferEstimate | None = optional()
    map_oracle: TransferEstimate | None = optional()
    coarse_accuracy: TransferEstimate | None = optional()


class TransferRow(Record):
    """Line of the printed table."""

    name: Text = written(empty=str)
    accuracy: TransferEstimate
    mean_class_accuracy: Share | None = written()
    first_draw: TransferEstimate | None = optional(
        "Accuracy of the first draw with the interval over test images, only for fewshot."
    )
    mean_average_precision: Share | None = optional(null=True)
    map_conditioned: Share | None = optional(
        "Mean average precision of keys ranked by the cosine and the predicted coarse class (Touvron 2022, eq. 2.5), "
        "for retrieval with coarse classes.",
        null=True,
    )
    map_oracle: Share | None = optional(
        "Mean average precision if keys of the query's true coarse class are ranked first.", null=True
    )
    coarse_accuracy: Share | None = optional("Accuracy of the predicted coarse class.")
    intervals: RetrievalIntervals | None = optional()
    l2: Number | None = optional(exclusiveMinimum=0)
    k: Count | None = optional(minimum=1)
    cell: Text | None = optional()


class UpstreamValidation(Record):
    """Validation figures of the 'usvit pretrain' run that made the weights; null if unknown."""

    val_accuracy: Share | None = nullable()
    val_loss: float | None = nullable()
    validation: Text | None = nullable(
        "Identifier of the validation images; only figures with the same identifier are comparable."
    )
    name: Text | None = nullable()


class Chosen(Record):
    """Settings chosen on the validation images, and the figures there."""

    l2: Number | None = optional()
    k: Count | None = optional()
    draw: Count | None = optional()
    sigma: Number | None = optional()
    cell: Text | None = optional()
    n_cells: Count | None = optional()
    final: Text | None = optional(null=True)
    val_accuracy: Share | None = optional(null=True)
    leave_one_out_accuracy: Number | None = optional()
    clusters: Count | None = optional("Number of clusters; from version 1.1 on.")


class Candidate(Record):
    """One of several upstream networks."""

    name: Text = written(empty=str)
    weights: Text | None = written()
    upstream_val_accuracy: Number | None = nullable()
    upstream_validation: Text | None = nullable()
    downstream_val_accuracy: Number | None = nullable()
    test: TransferEstimate


class ChoiceRecord(Record):
    """Network that a criterion chose."""

    name: Text | None = nullable()
    reason: Text | None = nullable()


class ChoiceDifference(Record):
    """Difference between the two choices on the test images."""

    accuracy: TransferEstimate
    mcnemar: dict[str, Any] | None = nullable()


class Recommended(Record):
    """Choice among several upstream networks (Steiner et al. 2022, section 4.5)."""

    kept: Text | None = written()
    candidates: list[Candidate] = written(empty=list, minItems=2)
    by_upstream_validation: ChoiceRecord = written(empty=ChoiceRecord)
    by_adapting_all: ChoiceRecord = written(empty=ChoiceRecord)
    difference: ChoiceDifference | None = nullable()
    difference_of: Text | None = written()


class TransferRecord(FileRecord):
    """Evaluation of upstream weights on other images."""

    KIND: ClassVar[str] = "transfer"
    VERSION: ClassVar[str] = "1.2"
    schema_version: Version | None = written()
    how: Literal["fewshot", "linear", "knn", "retrieval", "clusters", "separability", "finetune"] | None = written()
    images: TransferImages = written(empty=TransferImages)
    dropped: Dropped = written(empty=Dropped)
    model: Name | None = written()
    tune: Name | None = written(enum=TUNE)
    image_size: Count | None = written(minimum=32)
    weights: dict[str, Any] = written(empty=dict, required=["source", "name", "sha256"])
    upstream: UpstreamValidation = written(empty=UpstreamValidation)
    summary: list[TransferRow] = written(
        "The printed table. The predictions are those of the last line; for fewshot, those of its first draw.",
        empty=list,
        minItems=1,
    )
    chosen: Chosen = written(empty=Chosen)
    predictions: Name | None = written(null=True, enum=["predictions.csv", None])
    predictions_missing: Text | None = written("Reason why there is no predictions.csv.", null=True)
    contamination: Annotated[list[ContaminationRecord], Field(max_length=1000)] | None = optional(
        "Tested data sets that a foundation model behind the weights was pre-trained on (--allow-contaminated), since "
        "schema 1.2.",
        minItems=1,
    )
    recommended: Recommended | None = written("Choice among upstream networks; null for a single one.", null=True)
