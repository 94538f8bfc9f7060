"""``pretrain.json`` and ``transfer.json``: results of runs that train or evaluate initial weights."""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from usvit.estimate import Estimate
from usvit.records.base import Classes, Count, FileRecord, Fold, Name, Number, Record, Share, Text, key, optional
from usvit.records.compare import McNemar
from usvit.records.model import TUNE
from usvit.records.seen_images import ContaminationRecord
from usvit.records.weights_origin import WeightsRecord
from usvit.upstream.records.segment import SegmentationRecord


class KeptWeights(Record):
    """Row of history.csv of the step whose weights were kept.

    Further keys are figures of one objective, such as the share of the tokenizer's codes that are used.
    """

    model_config = ConfigDict(json_schema_extra={"x-open": {"type": ["number", "null"]}})
    fold: Fold
    step: Count = key(minimum=1)
    epoch: Number = key(minimum=0)
    lr: float = key("Learning rate; finite, but without an upper limit.", minimum=0)
    train_loss: float | None = key("Mean loss since the previous evaluation; may be negative for Grafit.")
    val_loss: float | None = key("Null without validation images.")
    val_accuracy: Share | None = key("Null without validation images, or if the objective has no accuracy.")
    val_auc: Number | None = key("Always null here; only cross-validations have a value.", const=None)
    images_per_second: Number | None = optional(null=True, minimum=0)


class PretrainRecord(FileRecord):
    """Figures of the weights that a pre-training kept."""

    KIND: ClassVar[str] = "pretrain"
    kept: list[KeptWeights] = key("One entry for each fold.", minItems=1)


class TransferImages(Record):
    """Images of a transfer."""

    source: Text
    classes: Classes
    chosen_on: Text = key("Description of the validation images, which are never the test images.")
    n_train: Count = key(minimum=1)
    n_val: Count
    n_test: Count = key("Number of test images, without those that were dropped.", minimum=1)


class Dropped(Record):
    """Test images that were left out."""

    seen_by_weights: Count | None = key(
        "Test images that the initial weights were trained on, and others of their groups; null if not examined."
    )
    in_training: Count | None = key("Test images with the same pixels as a training or validation image.")


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

    name: Text
    accuracy: TransferEstimate
    mean_class_accuracy: Share
    first_draw: TransferEstimate | None = optional(
        "Accuracy of the first draw with the interval over test images, only for fewshot."
    )
    l2: Number | None = optional(exclusiveMinimum=0)
    neighbours: Count | None = optional("Number of neighbours, of fewshot with probe=neighbours.", minimum=1)
    mean_average_precision: Share | None = optional(null=True)
    k: Count | None = optional(minimum=1)
    intervals: RetrievalIntervals | None = optional()
    map_conditioned: Share | None = optional(
        "Mean average precision of keys ranked by the cosine and the predicted coarse class (Touvron 2022, eq. 2.5), "
        "for retrieval with coarse classes.",
        null=True,
    )
    map_oracle: Share | None = optional(
        "Mean average precision if keys of the query's true coarse class are ranked first.", null=True
    )
    coarse_accuracy: Share | None = optional("Accuracy of the predicted coarse class.")
    cell: Text | None = optional()


class UpstreamValidation(Record):
    """Validation figures of the 'usvit pretrain' run that made the weights; null if unknown."""

    val_accuracy: Share | None
    val_loss: float | None
    validation: Text | None = key(
        "Identifier of the validation images; only figures with the same identifier are comparable."
    )
    name: Text | None


class Chosen(Record):
    """Settings chosen on the validation images, and the figures there."""

    k: Count | None = optional()
    l2: Number | None = optional()
    neighbours: Count | None = optional()
    draw: Count | None = optional()
    sigma: Number | None = optional()
    cell: Text | None = optional()
    val_accuracy: Share | None = optional(null=True)
    n_cells: Count | None = optional()
    final: Text | None = optional(null=True)
    leave_one_out_accuracy: Number | None = optional()
    clusters: Count | None = optional("Number of clusters.")


class Candidate(Record):
    """One of several upstream networks."""

    name: Text
    weights: Text
    upstream_val_accuracy: Number | None
    upstream_validation: Text | None
    downstream_val_accuracy: Number | None
    test: TransferEstimate


class ChoiceRecord(Record):
    """Network that a criterion chose."""

    name: Text | None
    reason: Text | None


class ChoiceDifference(Record):
    """Difference between the two choices on the test images."""

    accuracy: TransferEstimate
    mcnemar: McNemar | None


class Recommended(Record):
    """Choice among several upstream networks (Steiner et al. 2022, section 4.5)."""

    kept: Text
    candidates: list[Candidate] = key(minItems=2)
    by_upstream_validation: ChoiceRecord
    by_adapting_all: ChoiceRecord
    difference: ChoiceDifference | None
    difference_of: Text


class ZeroShotAuc(Record):
    """Area under the ROC curve of one class, or of one value of a concept, against the other ones, by its prompts."""

    of: Text = key("``class``, or the name of the concept, such as ``margin``.")
    value: Text
    n_positive: Count
    auc: TransferEstimate


class TextRecall(Record):
    """Share of queries whose own pair is among the first k."""

    query: Literal["image", "text"]
    k: Count = key(minimum=1)
    recall: TransferEstimate


class CaptionDescriptor(Record):
    """How often the value of a concept that a caption names is that of the image."""

    of: Text = key("Name of the concept, such as ``margin``.")
    accuracy: TransferEstimate = key("Among the images that have a value; a caption that names none is wrong.")
    most_frequent: Share = key("Share of the most frequent value, which is the accuracy of naming it always.")
    unread: Share = key("Share of the captions that name no value.")


class CaptionFigures(Record):
    """The captions of the test images."""

    log_perplexity: TransferEstimate = key(
        "Mean over texts of the negative log-likelihood of a byte pair, in nats, given the image."
    )
    bleu: Number | None = key(
        "Corpus BLEU by sacrebleu, in [0, 100], with one reference; null if sacrebleu is not installed.", minimum=0
    )
    n_params: Count = key("Trained parameters of the decoder.")
    descriptors: list[CaptionDescriptor]


class TextTuning(Record):
    """Text tower that was trained against the features."""

    n_words: Count = key("Size of the vocabulary.")
    n_params: Count = key("Trained parameters: those of the text tower and of the map of the features.")
    n_cut: Count = key("Texts, of training and test, that are longer than the context; their ends were not read.")
    loss: Number = key("Mean loss of the last tenth of the steps.")
    scale: Number = key("Scale of the cosine at the end.")
    seconds: Number = key("Duration of the training, without the features.", minimum=0)
    zero_shot: list[ZeroShotAuc] = key("Classes and values that no test image shows are left out.")
    recall: list[TextRecall] = key("Empty if the test images have no texts.")
    captions: CaptionFigures | None = optional("Only with text.decoder, and if the test images have texts.")


class TransferRecord(FileRecord):
    """Evaluation of upstream weights on other images."""

    KIND: ClassVar[str] = "transfer"
    how: Literal["fewshot", "linear", "knn", "retrieval", "clusters", "separability", "text", "segment", "finetune"]
    images: TransferImages
    dropped: Dropped
    model: Name
    tune: Name = key(enum=TUNE)
    image_size: Count = key(minimum=32)
    weights: WeightsRecord
    upstream: UpstreamValidation
    summary: list[TransferRow] = key(
        "The printed table. The predictions are those of the last line; for fewshot, those of its first draw.",
        minItems=1,
    )
    chosen: Chosen
    predictions: Name | None = key(enum=["predictions.csv", None])
    predictions_missing: Text | None = key("Reason why there is no predictions.csv.")
    recommended: Recommended | None = key("Choice among upstream networks; null for a single one.")
    text: TextTuning | None = optional("Only for ``text``.")
    segment: SegmentationRecord | None = optional("Only for ``segment``; the lines of 'summary' are its heads.")
    contamination: Annotated[list[ContaminationRecord], Field(max_length=1000)] | None = optional(
        "Tested data sets that a foundation model behind the weights was pre-trained on (--allow-contaminated).",
        minItems=1,
    )
