"""Calibration and recalibration in metrics.json."""

from typing import Annotated

from pydantic import Field

from usvit.estimate import Estimate
from usvit.records.base import Count, Fold, Name, Number, Record, Share, Text, key
from usvit.records.metrics_figures import Counts
from usvit.records.values import NonNegative, ShareValue


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
    ece_debiased: ShareValue = key("ece without the part that chance adds, with its interval.")
    ece_noise_floor: Number | None = key(
        "Mean of ece if every bin were perfectly calibrated; null if ece_debiased has no interval.", minimum=0
    )


class BrierParts(Record):
    """Decomposition of the Brier score."""

    score: ShareValue
    reliability: Number
    resolution: Number
    uncertainty: Number
    within_bins: Number
    skill: Estimate = key("1 - score / uncertainty.")


class ClassCalibration(Record):
    """Calibration of one class against the rest."""

    reliability: ReliabilityRecord
    slope: Estimate = key("1 is ideal; below 1 the probabilities are too extreme.")
    intercept: Estimate = key("Fitted together with the slope; 0 is ideal.")
    in_the_large: Estimate = key(
        "Intercept with the slope fixed at 1; above 0 the class is more frequent than predicted."
    )
    brier: BrierParts


class PooledCalibration(Record):
    """Calibration on all test images."""

    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    brier: ShareValue
    top_label: ReliabilityRecord = key("Reliability of the probability of the decided class.")
    classes: dict[str, ClassCalibration]


class CalibrationOfFold(Record):
    """Calibration of the positive class in one fold."""

    fold: Fold
    ece: ShareValue
    ece_debiased: ShareValue
    slope: Estimate
    intercept: Estimate
    in_the_large: Estimate


class RecalibratedRecord(Record):
    """Figures of all test images before or after a scaling.

    ece, slope, intercept and in_the_large are of the positive class; log_loss, brier and ece are point estimates.
    """

    log_loss: NonNegative
    brier: ShareValue
    ece: ShareValue
    ece_debiased: ShareValue
    slope: Estimate
    intercept: Estimate
    in_the_large: Estimate


class ScalingOfFold(Record):
    """Scaling that was fitted on one fold's inner validation images."""

    fold: Fold
    temperature: Number | None = key("Above 1 it reduces confidence; null for platt.")
    slope: Number | None = key("Slope of Platt scaling; null for temperature.")
    intercept: Number | None = key("Intercept of Platt scaling; null for temperature.")
    reason: Text | None = key("Reason why there is no fit.", minLength=1)
    n_images: Count = key("Inner validation images.")
    n_groups: Count
    class_counts: Counts


class Recalibration(Record):
    """One scaling, fitted on each fold's inner validation images and applied to its test images."""

    method: Name = key(enum=["temperature", "platt"])
    folds: list[ScalingOfFold]
    before: RecalibratedRecord
    after: RecalibratedRecord | None = key("Null if any fold has no fit.")
    reason: Text | None = key(minLength=1)


class ClassifierCalibrationRecord(Record):
    """Calibration: agreement of the probabilities with the observed shares."""

    n_bins: Count = key("Equal-mass bins that were asked for.", minimum=1)
    pooled: PooledCalibration
    folds: list[CalibrationOfFold] = key("Calibration of the positive class in each fold.", minItems=1)
    recalibration: list[Recalibration]
