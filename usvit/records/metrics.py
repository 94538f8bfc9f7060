"""``metrics.json``: every metric of a run, computed from its predictions."""

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, model_validator

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
    key,
    nullable,
    optional,
    written,
)
from usvit.records.guarantees import ConformalRecord, SelectiveRecord
from usvit.records.model import ContaminationRecord
from usvit.records.values import MeanSd, NonNegative, ShareValue, Value

OneFigure = TypeVar("OneFigure", ShareValue, MeanSd)
Counts = dict[str, Count]
_OVR: dict[str, Any] = {"propertyNames": {"pattern": "_vs_rest$"}}


class MainFigures(Record, Generic[OneFigure]):
    """Figures of every table of results: each a value with its interval, or mean and SD over folds."""

    accuracy: OneFigure
    balanced_accuracy: OneFigure = key("Mean of the classes' sensitivities.")
    auc_macro_ovr: OneFigure = key("Mean of the classes' one-vs-rest AUCs.")
    auc: dict[str, OneFigure] = key("<class>_vs_rest -> AUC.", **_OVR)
    sensitivity: dict[str, OneFigure]
    specificity: dict[str, OneFigure]

    def figure(self, name: str, of: str | None = None) -> OneFigure:
        """Return a figure by its name; ``of`` names the class of a figure that each class has (for auc, its key)."""
        found = getattr(self, name)
        figure: OneFigure = found if of is None else found[of]
        return figure


class AllFigures(MainFigures[OneFigure], Generic[OneFigure]):
    """All figures of one set of images. Dictionaries have one entry for each class."""

    ppv: dict[str, OneFigure] | None = written()
    npv: dict[str, OneFigure] | None = written()
    f1: dict[str, OneFigure] | None = written()
    average_precision: dict[str, OneFigure] | None = written()
    brier_vs_rest: dict[str, OneFigure] | None = written()
    auc_weighted_ovr: OneFigure | None = written("One-vs-rest AUCs, weighted by the classes' shares of the images.")
    auc_hand_till: OneFigure | None = written(
        "Mean of the AUCs of all pairs of classes, each computed on the images of the two classes only."
    )
    f1_macro: OneFigure | None = written()
    average_precision_macro: OneFigure | None = written()
    brier: OneFigure | None = written(
        "Half the sum over classes of the mean squared error of their probabilities; with two classes the usual score."
    )


class MeanSdRecord(AllFigures[MeanSd]):
    """Mean and standard deviation of the folds' own values. The SD is not a confidence interval."""

    mcc: MeanSd | None = written()
    log_loss: MeanSd | None = written()


class FiguresRecord(AllFigures[ShareValue]):
    """Figures of one set of images."""

    mcc: Value | None = written("Matthews' correlation coefficient over all classes, -1 to 1.")
    log_loss: NonNegative | None = written("Mean of -ln(probability of the reference class), in nats.")


class FoldFigures(FiguresRecord):
    """Figures of one fold: point estimates, so ci95 is null."""

    fold: Fold = key("Number of the fold; folds of all repeats are numbered consecutively.")
    repeat: Count | None = optional("Complete cross-validation that the fold belongs to, if there are several.")
    n_images: Count | None = written(minimum=1)
    n_groups: Count | None = written(minimum=1)


class TrainingShareRecord(Record):
    """Share of a fold's variance that is due to what its model learnt by chance.

    This share counts twice, since folds train on each other's test images.
    """

    value: Share | None = written()
    n_pairs: Count | None = written("Pairs of predictions of one group by two models that were not trained on it.")
    reason: Text | None = optional("Reason why the largest share is assumed.", minLength=1)


class Headline(Record):
    """Figures to quote, computed within the folds and averaged over folds and repeats.

    Their intervals hold under cross-validation (docs/explanation/intervals.md). In a hold-out: the pooled figures.
    """

    auc: ShareValue = key(
        "AUC of the positive class against the rest; sensitivity and specificity are of the same class."
    )
    auc_macro_ovr: ShareValue
    accuracy: ShareValue
    balanced_accuracy: ShareValue
    sensitivity: ShareValue
    specificity: ShareValue
    brier: ShareValue
    n_repeats: Annotated[int, Field(ge=1, le=10_000)]
    n_folds: Annotated[int, Field(ge=1, le=10_000)] = key("Folds of all repeats together: the number of models.")
    training_share: TrainingShareRecord | None = written("Null in a hold-out.", null=True)
    explains: Text = key("Explanation of the figures and their intervals.", minLength=1)


class Confusion(Record):
    """Counts by reference label and decision."""

    labels: Classes
    counts: Annotated[list[list[Count]], Field(max_length=1000)] = key(
        "Rows are the reference label, columns the decision; both in the order of labels."
    )

    @model_validator(mode="after")
    def _square(self) -> "Confusion":
        n = len(self.labels)
        if len(self.counts) != n or any(len(row) != n for row in self.counts):
            raise ValueError(f"{n} rows of {n} counts")
        return self


class OutcomeRecord(Record):
    """Decisions at one threshold."""

    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    true_positive: Count
    false_positive: Count
    true_negative: Count
    false_negative: Count
    sensitivity: ShareValue
    specificity: ShareValue
    ppv: ShareValue
    npv: ShareValue


class PointOfFold(Record):
    """Threshold of one fold and its decisions."""

    fold: Fold
    threshold: Number | None = key("An image is called positive if its probability is at least this.")
    reason: Text | None = written("Reason why there is no threshold.", null=True, minLength=1)
    chosen_on: OutcomeRecord | None = written(
        "Decisions on the images that chose the threshold: for comparison, never a result. Null if the threshold is "
        "fixed, or if there is none.",
        null=True,
    )
    on_test: OutcomeRecord | None = written("Point estimates on the test images.", null=True)
    target_reached: bool | None = written(
        "true if the test images reach the target; null if the rule has no target or the figure is undefined.",
        null=True,
    )


class ProcedureRecord(Record):
    """Figures with intervals of the whole procedure: groups are resampled, and thresholds chosen on them again."""

    sensitivity: ShareValue | None = written()
    specificity: ShareValue | None = written()
    ppv: ShareValue | None = written()
    npv: ShareValue | None = written()


class OperatingPointRecord(Record):
    """One rule that chooses thresholds, and its decisions for the positive class against the rest."""

    rule: Text = key(
        "The rule, such as 'sensitivity >= 0.9', 'Youden's index' or 'threshold 0.5'; in an external test also "
        "'frozen: ...', a threshold on the calibrated probability that was chosen before the labels were seen.",
        minLength=1,
    )
    source: Text = key("Description of the images on which the thresholds were chosen.", minLength=1)
    folds: Annotated[list[PointOfFold], Field(max_length=10_000)] = key(minItems=1)
    pooled: OutcomeRecord | None = key(
        "All test images, each decided by its own fold's threshold; the intervals are conditional on these thresholds."
    )
    procedure: ProcedureRecord | None = written(
        "Figures of 'pooled' with intervals of the whole procedure (docs/explanation/operating-points.md). Null for a "
        "threshold that was not chosen on this table, and if nothing is pooled.",
        null=True,
    )
    reason: Text | None = written("Reason why nothing is pooled.", null=True, minLength=1)
    n_below_target: Count | None = written("Folds whose test images miss the target; null without a target.", null=True)


class BinRecord(Record):
    """One bin of a reliability diagram."""

    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    lowest: Share
    highest: Share
    mean_prob: Share
    share: ShareValue = key("Share of the bin's images with this class; in top_label: of those decided correctly.")


class ReliabilityRecord(Record):
    """Reliability diagram."""

    bins: Annotated[list[BinRecord], Field(min_length=1, max_length=10_000)] = key(
        "Bins in ascending order of probability, with equally many images in each as far as ties allow."
    )
    n_bins_asked: Count = key(minimum=1)
    ece: ShareValue = key(
        "Mean over images of |observed share - mean probability| of their bin; chance alone makes it positive."
    )
    ece_debiased: ShareValue | None = written("ece without the part that chance adds, with its interval.")
    ece_noise_floor: Number | None = written(
        "Mean of ece if every bin were perfectly calibrated; null if ece_debiased has no interval.",
        null=True,
        minimum=0,
    )


class BrierParts(Record):
    """Decomposition of the Brier score."""

    score: ShareValue | None = written()
    reliability: Number | None = written()
    resolution: Number | None = written()
    uncertainty: Number | None = written()
    within_bins: Number | None = written()
    skill: Value | None = written("1 - score / uncertainty.")


class ClassCalibration(Record):
    """Calibration of one class against the rest."""

    reliability: ReliabilityRecord
    slope: Value = key("1 is ideal; below 1 the probabilities are too extreme.")
    intercept: Value = key("Fitted together with the slope; 0 is ideal.")
    in_the_large: Value = key("Intercept with the slope fixed at 1; above 0 the class is more frequent than predicted.")
    brier: BrierParts | None = written()


class PooledCalibration(Record):
    """Calibration on all test images."""

    n_images: Count | None = written(minimum=1)
    n_groups: Count | None = written(minimum=1)
    brier: ShareValue | None = written()
    top_label: ReliabilityRecord | None = written("Reliability of the probability of the decided class.")
    classes: dict[str, ClassCalibration]


class CalibrationOfFold(Record):
    """Calibration of the positive class in one fold."""

    fold: Fold | None = written()
    ece: ShareValue | None = written()
    ece_debiased: ShareValue | None = written()
    slope: Value | None = written()
    intercept: Value | None = written()
    in_the_large: Value | None = written()


class RecalibratedRecord(Record):
    """Figures of all test images before or after a scaling.

    ece, slope, intercept and in_the_large are of the positive class; log_loss, brier and ece are point estimates.
    """

    log_loss: NonNegative
    brier: ShareValue
    ece: ShareValue
    ece_debiased: ShareValue | None = written()
    slope: Value
    intercept: Value
    in_the_large: Value


class ScalingOfFold(Record):
    """Scaling that was fitted on one fold's inner validation images."""

    fold: Fold | None = written()
    temperature: Number | None = written("Above 1 it reduces confidence; null for platt.", null=True)
    slope: Number | None = written("Slope of Platt scaling; null for temperature.", null=True)
    intercept: Number | None = written("Intercept of Platt scaling; null for temperature.", null=True)
    reason: Text | None = written("Reason why there is no fit.", null=True, minLength=1)
    n_images: Count | None = written("Inner validation images.")
    n_groups: Count | None = written()
    class_counts: Counts | None = written()


class Recalibration(Record):
    """One scaling, fitted on each fold's inner validation images and applied to its test images."""

    method: Name = key(enum=["temperature", "platt"])
    folds: list[ScalingOfFold]
    before: RecalibratedRecord
    after: RecalibratedRecord | None = key("Null if any fold has no fit.")
    reason: Text | None = written(null=True, minLength=1)


class ClassifierCalibrationRecord(Record):
    """Calibration: agreement of the probabilities with the observed shares."""

    n_bins: Count | None = written("Equal-mass bins that were asked for.", minimum=1)
    pooled: PooledCalibration | None = written()
    folds: list[CalibrationOfFold] | None = written("Calibration of the positive class in each fold.", minItems=1)
    recalibration: list[Recalibration] | None = written()


class DecisionBand(Record):
    """Net benefit of the model minus that of the better default (to act on every image, or on none).

    The 95 % band contains the difference at all thresholds simultaneously.
    """

    difference: list[Number] | None = written(minItems=1)
    lower: list[Number] | None = written(minItems=1)
    upper: list[Number] | None = written(minItems=1)
    critical: Number | None = written("Half-width of the band in standard errors.", minimum=0)
    n_resamples: Count | None = written(minimum=1)
    method: Text | None = written(minLength=1)


_Range = Annotated[list[Share], Field(min_length=2, max_length=2)]


class DecisionCurveRecord(Record):
    """Net benefit of acting on images whose probability is at least the threshold, in true positives per image.

    It is computed for the positive class against the rest.
    """

    thresholds: Annotated[list[Share], Field(min_length=1, max_length=100_000)]
    model: list[Number | None]
    treat_all: list[Number | None]
    treat_none: list[Number | None]
    standardised: list[Number | None] | None = written()
    prevalence: Share | None = written(
        "Share of the positive class among the test images; public data sets contain more cancers than a clinic sees."
    )
    n_images: Count | None = written(minimum=1)
    n_groups: Count | None = written(minimum=1)
    n_positive: Count | None = written()
    useful: list[_Range] | None = written(
        "Ranges of thresholds, [first, last], at which the model is better than both defaults: the lower end of the "
        "band is above 0. (Until schema 1.2 by the estimate alone.)"
    )
    estimated_useful: list[_Range] | None = written(
        "Ranges of thresholds by the estimate alone. Most studies of a model without skill have such ranges, too."
    )
    band: DecisionBand | None = written(null=True)
    band_reason: Text | None = written("Reason why there is no band.", null=True, minLength=1)
    reason: Text | None = written("Reason why entries are null.", null=True, minLength=1)

    @model_validator(mode="after")
    def _of_one_length(self) -> "DecisionCurveRecord":
        if any(len(one) != len(self.thresholds) for one in (self.model, self.treat_all, self.treat_none)):
            raise ValueError("curves as long as their thresholds")
        return self


class Level(Record):
    """One level of a subgroup."""

    level: Text = key(minLength=1)
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    class_images: Counts | None = written()
    class_groups: Counts | None = written()
    warning: Text | None = written("Reason to read the figures of this level with care.", null=True, minLength=1)
    figures: MainFigures[ShareValue]


class LevelDifference(Record):
    """Figures of one level minus those of all other images whose value is recorded."""

    level: Text = key(minLength=1)
    against: Text = key("The other level if there are two, otherwise 'all others'.", minLength=1)
    n_images: Count | None = optional("Images of the level. Since schema 1.5.", minimum=1)
    n_groups: Count | None = optional("Groups of the level. Since schema 1.5.", minimum=1)
    n_images_against: Count | None = optional("Images on the other side. Since schema 1.5.", minimum=1)
    n_groups_against: Count | None = optional("Groups on the other side. Since schema 1.5.", minimum=1)
    auc: Value = key("Difference of the AUCs of the positive class against the rest.")
    accuracy: Value
    sensitivity: Value | None = optional(
        "Difference of the sensitivities of the positive class, by the most probable class. Since schema 1.5."
    )
    specificity: Value | None = optional("Difference of the specificities, likewise. Since schema 1.5.")


class Subgrouping(Record):
    """Subgroups of one column."""

    by: Text = key("Name of the column.", minLength=1)
    levels: Annotated[list[Level], Field(max_length=100_000)]
    differences: list[LevelDifference] | None = written("p_holm is corrected for all differences of all columns.")
    reason: Text | None = written("Reason why there are no levels.", null=True, minLength=1)


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
    mean: FiguresRecord | None = optional("Figures of the mean probability of each class over the patient's images.")
    max: FiguresRecord | None = optional(
        "Figures of the patient's image with the highest probability of the positive class."
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
                    "mean",
                    "max",
                ]
            },
        }
    )

    @model_validator(mode="after")
    def _whole(self) -> "Patients":
        if self.n_patients is not None and (self.mean is None or self.max is None or self.n_images is None):
            raise ValueError("figures of the patients, or n_patients null")
        return self


class RuleAtPrevalence(Record):
    """Predictive values of one rule."""

    rule: Text = key("'most probable class', or the rule of an operating point, whose thresholds are taken as given.")
    ppv: ShareValue
    npv: ShareValue


class AtPrevalence(Record):
    """Predictive values at a stated prevalence (--prevalence), by Bayes' rule from sensitivity and specificity."""

    prevalence: Share = key(
        "Prevalence that the user gave; it is taken as known.", exclusiveMinimum=0, exclusiveMaximum=1
    )
    of_test_images: Share = key("Share of positive images in the test; ppv and npv elsewhere refer to it.")
    rules: list[RuleAtPrevalence] = key(minItems=1)


class SeenAnswer(Record):
    """Result of the search for tested images that the model had seen. These are refused, or left out and counted."""

    found: Name | None = written(
        "none: pixel hashes and near-duplicate descriptions of everything that was seen were compared with all tested "
        "images. none by exact hash: for some only pixel hashes could be compared. not known: it is not on record what "
        "the model has seen.",
        enum=["none", "none by exact hash", "not known"],
    )
    answer: Text | None = written()


class RecalibrationFiguresRecord(Record):
    """The calibration.json whose temperature and thresholds replaced those of the model."""

    sha256: Name | None = written()
    n_images: Count | None = written(minimum=1)
    n_groups: Count | None = written(minimum=1)


class WorstCase(Record):
    """Figures of one rule if each image that could not be scored had been called wrongly."""

    rule: Text
    sensitivity: ShareValue
    specificity: ShareValue


class Failures(Record):
    """Labelled images that could not be scored."""

    n_failed: Count | None = nullable()
    share: ShareValue | None = nullable("Share of all labelled images of the job.")
    codes: Counts | None = written(
        "Code of failures.csv -> labelled images.", additionalProperties={"type": "integer", "minimum": 1}
    )
    worst_case: list[WorstCase] = written(empty=list)
    reason: Text | None = nullable("Reason why the failures are not known.", minLength=1)


class DecidedOnly(Record):
    """Decisions of one frozen threshold on the images that were decided."""

    rule: Text
    outcome: OutcomeRecord


class Abstained(Record):
    """Frames that the model did not decide (usvit score --abstain and --abstain-at)."""

    n_images: Count | None = written("Frames without a decision.")
    decided_only: list[DecidedOnly] = written("The frozen thresholds on all other frames.", empty=list)


class External(Record):
    """Section of an external test (usvit evaluate SCORES --labels)."""

    unit: Literal["frame", "item", "study", "patient"] | None = written("Unit of a row, which n_images counts.")
    roll_up: Literal["mean", "max"] | None = nullable(
        "Method that combines the frames of a unit into one row; null for frames."
    )
    joined_by: Name | None = written(enum=["item_id", "instance_id", "study_id", "patient_id"])
    seen: SeenAnswer | None = optional("Result of the search for images that the model had seen. Since schema 1.3.")
    model_sha256: Name | None = written()
    recalibrated: RecalibrationFiguresRecord | None = nullable()
    counts: Counts | None = written(
        "label_rows: rows of the table. labels: different ids with a label that is used. The others count what is not "
        "used, as unmatched.csv lists it."
    )
    failures: Failures = written(empty=Failures)
    abstained: Abstained = written(empty=Abstained)
    calibrated: ClassCalibration | None = written(
        "Calibration of the calibrated probability of the positive class, to which the frozen thresholds apply; "
        "'calibration' describes the plain probability."
    )
    conformal: ConformalRecord | None = optional(
        "Conformal sets of the calibration.json that was given, tested on these images; null without them. Since "
        "schema 1.5.",
        null=True,
    )


class MetricsRecord(FileRecord):
    """Every metric of a run, computed only from its predictions.

    Rows of split 'test' are measured; rows of split 'val' only choose thresholds and fit scalings.
    """

    KIND: ClassVar[str] = "metrics"
    VERSION: ClassVar[str] = "1.5"
    schema_version: Version
    positive_class: Name = key(
        "Class that the headline, the operating points and the decision curve describe; one of 'classes'."
    )
    classes: Classes = key("Class names. Among equal probabilities the first of these classes is the decision.")
    n_images: Annotated[int, Field(ge=1, le=10**9)]
    n_groups: Annotated[int, Field(ge=1, le=10**9)] = key(
        "Distinct group_id: patients, clusters of near-duplicates or single images."
    )
    class_counts: Counts = key("Test images by reference label.")
    class_groups: Counts | None = written("Groups with a test image of the class; a group may count for two classes.")
    warnings: list[Text] | None = written("Sentences for a reader of the figures; empty if there are none.")
    contamination: Annotated[list[ContaminationRecord], Field(max_length=1000)] | None = optional(
        "Tested data sets that a foundation model behind the network was pre-trained on (--allow-contaminated), since "
        "schema 1.4. The figures are inflated.",
        minItems=1,
    )
    headline: Headline | None = written("Figures to quote. Since schema 1.3.")
    pooled: FiguresRecord = key(
        "Figures of all test images as one set, each predicted by the model that was not trained on it, with "
        "intervals. With repeats, the figures are of the first repeat."
    )
    folds: Annotated[list[FoldFigures], Field(min_length=1, max_length=10_000)]
    mean_sd: MeanSdRecord
    confusion: Confusion
    patients: Patients | None = written()
    operating_points: list[OperatingPointRecord] | None = written(
        "Decisions for the positive class against the rest, at thresholds that were chosen on other images."
    )
    calibration: ClassifierCalibrationRecord | None = written()
    decision_curve: DecisionCurveRecord | None = written()
    subgroups: list[Subgrouping] | None = written("One entry for each column with more than one value.")
    conformal: list[ConformalRecord] | None = written(
        "Prediction sets with a guaranteed coverage, one entry for each alpha and guarantee. Since schema 1.5."
    )
    selective: SelectiveRecord | None = written("Abstention, deferral and rule-out. Since schema 1.5.")
    at_prevalence: AtPrevalence | None = optional()
    external: External | None = optional()

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
