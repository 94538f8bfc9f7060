"""``metrics.json``: as ``docs/reference/metrics.schema.json``, as far as usvit reads it back."""

from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, model_validator

from usvit.records.base import Classes, Count, Fold, Name, Number, Record, Text

Share = Annotated[float, Field(ge=0, le=1)]


class Value(Record):
    """A figure with its interval."""

    value: Number | None
    ci95: Annotated[list[Number | None], Field(min_length=2, max_length=2)] | None = None
    method: Text | None = None
    reason: Text | None = None
    warning: Text | None = None
    n_groups: Count | None = None


class MeanSd(Record):
    """Mean and standard deviation over folds."""

    mean: Number | None
    sd: Number | None
    n_folds: Count | None = None
    n_skipped: Count | None = None
    reason: Text | None = None


OneFigure = TypeVar("OneFigure", Value, MeanSd)


class MainFigures(Record, Generic[OneFigure]):
    """The figures that every table of results has: each a ``Value``, or a ``MeanSd`` over folds."""

    accuracy: OneFigure
    balanced_accuracy: OneFigure
    auc_macro_ovr: OneFigure
    auc: dict[str, OneFigure]
    sensitivity: dict[str, OneFigure]
    specificity: dict[str, OneFigure]


class Figures(MainFigures[Value]):
    """The figures of one set of images."""

    ppv: dict[str, Value] | None = None
    npv: dict[str, Value] | None = None
    f1: dict[str, Value] | None = None
    average_precision: dict[str, Value] | None = None
    brier_vs_rest: dict[str, Value] | None = None
    log_loss: Value | None = None
    brier: Value | None = None
    mcc: Value | None = None
    f1_macro: Value | None = None


class FoldFigures(Figures):
    """The figures of one fold."""

    fold: Fold
    n_images: Count | None = None
    n_groups: Count | None = None


class Headline(Record):
    """The figures to quote: of the positive class against the rest, or over all classes."""

    auc: Value
    auc_macro_ovr: Value
    accuracy: Value
    balanced_accuracy: Value
    sensitivity: Value
    specificity: Value
    brier: Value
    n_repeats: Annotated[int, Field(ge=1, le=10_000)]
    n_folds: Annotated[int, Field(ge=1, le=10_000)]
    explains: Text


class Confusion(Record):
    """Counts by reference label (rows) and decision (columns)."""

    labels: Classes
    counts: Annotated[list[list[Count]], Field(max_length=1000)]

    @model_validator(mode="after")
    def _square(self) -> "Confusion":
        n = len(self.labels)
        if len(self.counts) != n or any(len(row) != n for row in self.counts):
            raise ValueError(f"{n} rows of {n} counts")
        return self


class Outcome(Record):
    """Decisions at one threshold."""

    n_images: Count
    n_groups: Count
    true_positive: Count
    false_positive: Count
    true_negative: Count
    false_negative: Count
    sensitivity: Value
    specificity: Value
    ppv: Value
    npv: Value


class PointOfFold(Record):
    """One fold's threshold, and what it came to."""

    fold: Fold
    threshold: Number | None
    reason: Text | None = None
    chosen_on: Outcome | None = None
    on_test: Outcome | None = None
    target_reached: bool | None = None


class OperatingPoint(Record):
    """One rule that chooses thresholds."""

    rule: Text
    source: Text
    folds: Annotated[list[PointOfFold], Field(max_length=10_000)]
    pooled: Outcome | None
    reason: Text | None = None
    n_below_target: Count | None = None


class Bin(Record):
    """One bin of a reliability diagram."""

    n_images: Count
    n_groups: Count
    lowest: Share
    highest: Share
    mean_prob: Share
    share: Value


class Reliability(Record):
    """A reliability diagram."""

    bins: Annotated[list[Bin], Field(min_length=1, max_length=10_000)]
    n_bins_asked: Count
    ece: Value


class ClassCalibration(Record):
    """Calibration of one class against the rest."""

    reliability: Reliability
    slope: Value
    intercept: Value
    in_the_large: Value
    brier: dict[str, Any] | None = None


class PooledCalibration(Record):
    """Calibration of all test images."""

    n_images: Count | None = None
    n_groups: Count | None = None
    brier: Value | None = None
    top_label: Reliability | None = None
    classes: dict[str, ClassCalibration]


class Recalibrated(Record):
    """Figures before or after a scaling."""

    log_loss: Value
    brier: Value
    ece: Value
    slope: Value
    intercept: Value
    in_the_large: Value


class Recalibration(Record):
    """One scaling, fitted on validation images."""

    method: Name
    folds: list[dict[str, Any]]
    before: Recalibrated
    after: Recalibrated | None
    reason: Text | None = None


class Calibration(Record):
    """The section ``calibration``."""

    n_bins: Count | None = None
    pooled: PooledCalibration | None = None
    folds: list[dict[str, Any]] | None = None
    recalibration: list[Recalibration] | None = None


class DecisionCurve(Record):
    """Net benefit by threshold."""

    thresholds: Annotated[list[Share], Field(min_length=1, max_length=100_000)]
    model: list[Number | None]
    treat_all: list[Number | None]
    treat_none: list[Number | None]
    standardised: list[Number | None] | None = None
    prevalence: Share | None = None
    n_images: Count | None = None
    n_groups: Count | None = None
    n_positive: Count | None = None
    useful: list[Annotated[list[Share], Field(min_length=2, max_length=2)]] | None = None
    reason: Text | None = None

    @model_validator(mode="after")
    def _of_one_length(self) -> "DecisionCurve":
        if any(len(one) != len(self.thresholds) for one in (self.model, self.treat_all, self.treat_none)):
            raise ValueError("curves as long as their thresholds")
        return self


class Level(Record):
    """One level of a subgroup."""

    level: Text
    n_images: Count
    n_groups: Count
    class_images: dict[str, Count] | None = None
    class_groups: dict[str, Count] | None = None
    warning: Text | None = None
    figures: MainFigures[Value]


class Subgrouping(Record):
    """The subgroups of one column."""

    by: Text
    levels: Annotated[list[Level], Field(max_length=100_000)]
    reason: Text | None = None


class Patients(Record):
    """The same figures with one row a patient."""

    n_patients: Count | None
    reason: Text | None = None
    n_images: Count | None = None
    n_images_without_id: Count | None = None
    n_mixed: Count | None = None
    label_order: list[Name] | None = None
    class_patients: dict[str, Count] | None = None
    mean: Figures | None = None
    max: Figures | None = None

    @model_validator(mode="after")
    def _whole(self) -> "Patients":
        if self.n_patients is not None and (self.mean is None or self.max is None or self.n_images is None):
            raise ValueError("figures of the patients, or n_patients null")
        return self


class MetricsRecord(Record):
    """The whole file."""

    schema_version: Annotated[str, Field(pattern=r"^\d{1,4}\.\d{1,4}$")] | None = None
    positive_class: Name
    classes: Classes
    n_images: Annotated[int, Field(ge=1, le=10**9)]
    n_groups: Annotated[int, Field(ge=1, le=10**9)]
    class_counts: dict[str, Count]
    class_groups: dict[str, Count] | None = None
    warnings: list[Text] | None = None
    headline: Headline | None = None
    """Since schema 1.3."""
    pooled: Figures
    folds: Annotated[list[FoldFigures], Field(min_length=1, max_length=10_000)]
    mean_sd: MainFigures[MeanSd]
    confusion: Confusion
    patients: Patients | None = None
    operating_points: list[OperatingPoint] | None = None
    calibration: Calibration | None = None
    decision_curve: DecisionCurve | None = None
    subgroups: list[Subgrouping] | None = None

    @model_validator(mode="after")
    def _of_its_classes(self) -> "MetricsRecord":
        known = set(self.classes)
        if len(known) < len(self.classes) or self.positive_class not in known:
            raise ValueError("different classes, the positive one among them")
        areas = {f"{name}_vs_rest" for name in known}
        several: tuple[MainFigures[Value] | MainFigures[MeanSd], ...] = (self.pooled, *self.folds, self.mean_sd)
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
