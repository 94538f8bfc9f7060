"""``metrics.json``: every metric of a run, computed from its predictions."""

from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from usvit.estimate import Estimate
from usvit.records.base import Classes, Count, FileRecord, Name, Record, Text, key, optional
from usvit.records.flow import UnitPrevalence
from usvit.records.guarantees import ConformalRecord, SelectiveRecord
from usvit.records.mask_estimates import MaskEstimates
from usvit.records.metrics_calibration import ClassifierCalibrationRecord
from usvit.records.metrics_decisions import AtPrevalence, DecisionCurve, OperatingPointRecord
from usvit.records.metrics_external import External
from usvit.records.metrics_figures import (
    Confusion,
    Counts,
    FiguresRecord,
    FoldFigures,
    Headline,
    MainFigures,
    MeanSdRecord,
)
from usvit.records.seen_images import ContaminationRecord
from usvit.records.units import RowsOfUnit, UnitRecord
from usvit.records.values import ShareValue


class Level(Record):
    """One level of a subgroup."""

    level: Text = key(minLength=1)
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    class_images: Counts
    class_groups: Counts
    warning: Text | None = key("Reason to read the figures of this level with care.", minLength=1)
    figures: MainFigures[ShareValue]


class LevelDifference(Record):
    """Figures of one level minus those of all other images whose value is recorded."""

    level: Text = key(minLength=1)
    against: Text = key("The other level if there are two, otherwise 'all others'.", minLength=1)
    n_images: Count = key("Images of the level.", minimum=1)
    n_groups: Count = key("Groups of the level.", minimum=1)
    n_images_against: Count = key("Images on the other side.", minimum=1)
    n_groups_against: Count = key("Groups on the other side.", minimum=1)
    auc: Estimate = key("Difference of the AUCs of the positive class against the rest.")
    accuracy: Estimate
    sensitivity: Estimate = key("Difference of the sensitivities of the positive class, by the most probable class.")
    specificity: Estimate = key("Difference of the specificities, by the most probable class.")


class Subgrouping(Record):
    """Subgroups of one column."""

    by: Text = key("Name of the column.", minLength=1)
    levels: Annotated[list[Level], Field(max_length=100_000)]
    differences: list[LevelDifference] = key("p_holm is corrected for all differences of all columns.")
    reason: Text | None = key("Reason why there are no levels.", minLength=1)


class PatientHeadline(Record):
    """Figures of patients to quote, for each rule that makes one probability of a patient's images."""

    mean: Headline = key("Of the mean probability of each class over the patient's images.")
    max: Headline = key("Of the patient's image with the highest probability of the positive class.")


class Patients(Record):
    """Figures with one row for each patient. Without patient ids: n_patients is null, and reason says why."""

    n_patients: Count | None = key(minimum=1)
    reason: Text | None = optional(minLength=1)
    n_images: Count | None = optional("Test images with a patient id.", minimum=1)
    n_images_without_id: Count | None = optional()
    n_mixed: Count | None = optional(
        "Patients with images of several labels; each counts as the first of label_order that it has."
    )
    label_order: list[Name] | None = optional()
    class_patients: Counts | None = optional()
    headline: PatientHeadline | None = optional("Means over folds with intervals that hold under cross-validation.")
    mean: FiguresRecord | None = optional(
        "Pooled figures of the mean probability of each class over the patient's images."
    )
    max: FiguresRecord | None = optional(
        "Pooled figures of the patient's image with the highest probability of the positive class."
    )

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"n_patients": {"type": "null"}}},
            "then": {"required": ["reason"]},
            "else": {
                "required": [
                    "n_images",
                    "n_images_without_id",
                    "n_mixed",
                    "label_order",
                    "class_patients",
                    "headline",
                    "mean",
                    "max",
                ]
            },
        }
    )

    @model_validator(mode="after")
    def _whole(self) -> "Patients":
        if self.n_patients is not None and None in (self.headline, self.mean, self.max, self.n_images):
            raise ValueError("figures of the patients, or n_patients null")
        return self


class MetricsRecord(RowsOfUnit, FileRecord):
    """Every metric of a run, computed only from its predictions.

    Rows of split 'test' are measured; rows of split 'val' only choose thresholds and fit scalings. With 'unit', each
    row is a unit: 'images' in the other keys are units, except in 'patients'.
    """

    KIND: ClassVar[str] = "metrics"
    positive_class: Name = key(
        "Class that the headline, the operating points and the decision curve describe; one of 'classes'."
    )
    classes: Classes = key("Class names. Among equal probabilities the first of these classes is the decision.")
    n_images: Annotated[int, Field(ge=1, le=10**9)]
    n_groups: Annotated[int, Field(ge=1, le=10**9)] = key(
        "Distinct group_id: patients, clusters of near-duplicates or single images."
    )
    class_counts: Counts = key("Test images by reference label.")
    class_groups: Counts = key("Groups with a test image of the class; a group may count for two classes.")
    warnings: list[Text] = key("Sentences for a reader of the figures; empty if there are none.")
    headline: Headline = key("Figures to quote.")
    pooled: FiguresRecord = key(
        "Figures of all test images as one set, each predicted by the model that was not trained on it, with "
        "intervals. With repeats, the figures are of the first repeat."
    )
    folds: Annotated[list[FoldFigures], Field(min_length=1, max_length=10_000)]
    mean_sd: MeanSdRecord
    confusion: Confusion
    patients: Patients
    unit: UnitRecord | None = optional("Present if a row is not an image.")
    operating_points: list[OperatingPointRecord] = key(
        "Decisions for the positive class against the rest, at thresholds that were chosen on other images."
    )
    calibration: ClassifierCalibrationRecord
    decision_curve: DecisionCurve
    subgroups: list[Subgrouping] = key("One entry for each column with more than one value.")
    conformal: list[ConformalRecord] = key(
        "Prediction sets with a guaranteed coverage, one entry for each alpha and guarantee."
    )
    selective: SelectiveRecord = key("Abstention, deferral and rule-out.")
    at_prevalence: AtPrevalence | None = optional()
    contamination: Annotated[list[ContaminationRecord], Field(max_length=1000)] | None = optional(
        "Tested data sets that a foundation model behind the network was pre-trained on (--allow-contaminated). "
        "The figures are inflated.",
        minItems=1,
    )
    external: External | None = optional()
    masks: MaskEstimates | None = optional("Lesion masks of the decoder of loss.mask_weight.")
    prevalence: Annotated[list[UnitPrevalence], Field(max_length=3)] | None = optional(
        "Share of the positive class per image, and per lesion and patient where the table names them."
    )

    @model_validator(mode="after")
    def _of_its_classes(self) -> "MetricsRecord":
        known = set(self.classes)
        if len(known) < len(self.classes) or self.positive_class not in known:
            raise ValueError("different classes, the positive one among them")
        areas = {f"{name}_vs_rest" for name in known}
        several: tuple[MainFigures[Any], ...] = (self.pooled, *self.folds, self.mean_sd)
        for figures in several:
            if not (known <= figures.sensitivity.keys() and known <= figures.specificity.keys()):
                raise ValueError("sensitivity and specificity of each class")
            if not areas <= figures.auc.keys():
                raise ValueError("the AUC of each class")
        if set(self.confusion.labels) != known or not known <= self.class_counts.keys():
            raise ValueError("confusion and class_counts of the classes")
        if len({one.fold for one in self.folds}) < len(self.folds):
            raise ValueError("each fold once")
        return self

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"classes": self.classes, "positive_class": self.positive_class}
        facts |= {"n_images": self.n_images, "n_groups": self.n_groups, "warnings": len(self.warnings)}
        facts |= {"auc": self.headline.auc, "accuracy": self.headline.accuracy}
        return facts
