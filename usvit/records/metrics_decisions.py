"""Decisions in metrics.json: operating points, decision curve, predictive values at a stated prevalence."""

from typing import Annotated

from pydantic import Field, model_validator

from usvit.records.base import Count, Fold, Number, Record, Share, Text, key
from usvit.records.values import ShareValue


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
    reason: Text | None = key("Reason why there is no threshold.", minLength=1)
    chosen_on: OutcomeRecord | None = key(
        "Decisions on the images that chose the threshold: for comparison, never a result. Null if the threshold is "
        "fixed, or if there is none."
    )
    on_test: OutcomeRecord | None = key("Point estimates on the test images.")
    target_reached: bool | None = key(
        "true if the test images reach the target; null if the rule has no target or the figure is undefined."
    )


class ProcedureRecord(Record):
    """Figures with intervals of the whole procedure, which chooses thresholds and then decides on new patients."""

    sensitivity: ShareValue
    specificity: ShareValue
    ppv: ShareValue
    npv: ShareValue


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
    reason: Text | None = key("Reason why nothing is pooled.", minLength=1)
    n_below_target: Count | None = key("Folds whose test images miss the target; null without a target.")
    procedure: ProcedureRecord | None = key(
        "Figures of 'pooled' with intervals of the whole procedure (docs/explanation/operating-points.md). Null for a "
        "threshold that was not chosen on this table, and if nothing is pooled."
    )


class DecisionBand(Record):
    """Net benefit of the model minus that of the better default (to act on every image, or on none).

    The 95 % band contains the difference at all thresholds simultaneously.
    """

    difference: list[Number] = key(minItems=1)
    lower: list[Number] = key(minItems=1)
    upper: list[Number] = key(minItems=1)
    critical: Number = key("Half-width of the band in standard errors.", minimum=0)
    n_resamples: Count = key(minimum=1)
    method: Text = key(minLength=1)


_Range = Annotated[list[Share], Field(min_length=2, max_length=2)]


class DecisionCurve(Record):
    """Net benefit of acting on images whose probability is at least the threshold, in true positives per image.

    It is computed for the positive class against the rest.
    """

    thresholds: Annotated[list[Share], Field(min_length=1, max_length=100_000)]
    model: list[Number | None]
    treat_all: list[Number | None]
    treat_none: list[Number | None]
    standardised: list[Number | None]
    prevalence: Share = key(
        "Share of the positive class among the test images; public data sets contain more cancers than a clinic sees."
    )
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    n_positive: Count
    useful: list[_Range] = key(
        "Ranges of thresholds, [first, last], at which the model is better than both defaults: the lower end of the "
        "band is above 0."
    )
    estimated_useful: list[_Range] = key(
        "Ranges of thresholds by the estimate alone. Most studies of a model without skill have such ranges, too."
    )
    band: DecisionBand | None
    band_reason: Text | None = key("Reason why there is no band.", minLength=1)
    reason: Text | None = key("Reason why entries are null.", minLength=1)

    @model_validator(mode="after")
    def _of_one_length(self) -> "DecisionCurve":
        if any(len(one) != len(self.thresholds) for one in (self.model, self.treat_all, self.treat_none)):
            raise ValueError("curves as long as their thresholds")
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
