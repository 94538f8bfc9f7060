"""``plan.json`` of ``usvit plan``: the sample size of a study, with everything that it assumes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from usvit.config.planning import ComparisonTest
from usvit.records.base import Count, FileRecord, Name, Number, Record, Share, Text, key, optional
from usvit.records.units import RowsOfUnit, UnitRecord

PlanDesign = Literal["validation", "accuracy", "comparison"]
PlanTarget = Literal["width", "half width", "power"]
_Amount = Annotated[Number, Field(ge=0)]


class PlanAssumptions(RowsOfUnit, Record):
    """What the user expects of the planned study. A wrong assumption makes the size wrong."""

    positive_class: Name | None = key("Class of the runs in 'like'.")
    auc: Share | None = key("AUC of the model; of the first model in a comparison.")
    auc_b: Share | None = key("AUC of the second model of a comparison.")
    sensitivity: Share | None
    specificity: Share | None
    threshold: Share | None = key("Threshold probability of the net benefit.")
    correlation: Number | None = key(
        "Correlation of the scores of two models on one image, within a class.", minimum=-1, maximum=1
    )
    linear_predictor: Text | None = key("Distribution of the log-odds that the model predicts.")
    linear_predictor_mean: Number | None = key("Mean over all images.")
    linear_predictor_sd: _Amount | None = key("SD over all images.")
    prevalence: Share = key("Share of positive images.")
    images_per_patient: Annotated[Number, Field(ge=1)]
    images_cv: _Amount = key("Coefficient of variation (SD / mean) of the number of images of a patient.")
    icc: Share = key("Correlation of the scores of two images of one patient, within a class.")
    like: list[Text] = key("Runs or tables from which assumptions were taken.")
    unit: UnitRecord | None = optional("What a row of 'like' is, which keys of images count; absent for images.")
    notes: list[Text] = key("How the assumptions were taken.")


class PlanCriterion(Record):
    """One aim of the study and the size that it needs."""

    name: Name
    value: Number | None = key("The expected figure.")
    target: Number | None = key("Width or half width of the 95 % interval, or power.")
    target_kind: PlanTarget
    intraclass: Share | None = key("Correlation of what two images of a patient add to the figure.")
    design_effect: Annotated[Number, Field(ge=1)] | None = key("1 + ((1 + CV^2) m - 1) * intraclass")
    n_independent: Count | None = key("Images that are needed if every patient has one.")
    n_images: Count | None
    n_patients: Count | None
    reason: Text | None = key("Reason why there is no size.", minLength=1)


class PlanPoint(Record):
    """What a study of this size can be expected to show."""

    n_patients: Count
    n_images: Count
    half_widths: dict[str, _Amount] = key("Criterion -> half the width of its 95 % interval.")
    power: Share | None = optional("Of the comparison.")


class PlanRecord(FileRecord):
    """Sample size of a planned study."""

    KIND: ClassVar[str] = "plan"
    command: Text
    usvit_version: Name
    design: PlanDesign
    test: ComparisonTest | None = key("Test of a comparison.")
    margin: Share | None = key("Margin of non-inferiority or equivalence of the AUC.")
    assumptions: PlanAssumptions
    criteria: list[PlanCriterion] = key(minItems=1)
    decisive: Name | None = key("Criterion that needs most patients; null if none has a size.")
    n_patients: Count | None
    n_images: Count | None
    n_positive_images: Count | None = key("Positive images expected among n_images.")
    curve: list[PlanPoint] = key("Sizes in ascending order.")
    warnings: list[Text]
