"""Sections ``conformal`` and ``selective`` of metrics.json."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from usvit.records.base import Count, Fold, Number, Record, Share, Text, key
from usvit.records.values import ShareValue

_OpenShare = Annotated[float, Field(gt=0, lt=1)]


class SetsOfFold(Record):
    """Bounds of the sets of one fold, from its inner validation patients."""

    fold: Fold
    positive_from: Share | None = key(
        "The positive class is in the set of an image if its probability is at least this; null without enough "
        "patients."
    )
    rest_up_to: Share | None = key("The rest is in the set if the probability of the positive class is at most this.")
    n_positive: Count = key("Calibration patients with a positive image.")
    n_rest: Count = key("Calibration patients with another image.")


class SetsOfClass(Record):
    """Prediction sets of the test images of one reference."""

    reference: Text = key("The positive class, 'not <positive class>', or 'all'.", minLength=1)
    n_images: Count
    coverage: ShareValue = key(
        "Share of patients for whom the guarantee held: whose sets are right for every image, or the mean over "
        "patients of the share of images whose set is right. It should be at least 1 - alpha; the interval takes the "
        "bounds as given."
    )
    mean_size: Annotated[float, Field(ge=0, le=2)] | None = key("Mean number of classes in the set of an image.")
    one_class: ShareValue = key("Share of images with one class in the set.")
    both_classes: ShareValue = key("Share of images with both classes in the set: the model is undecided.")
    no_class: ShareValue = key("Share of images with an empty set: unlike the calibration patients of either class.")
    one_class_right: ShareValue = key("Of the images with one class in the set, the share for which it is right.")


class ConformalRecord(Record):
    """Conformal prediction sets of the positive class against the rest, with one threshold for each of the two."""

    alpha: _OpenShare = key("Share of new patients of each class whom the sets may miss.")
    guarantee: Literal["every image", "one image"] = key(
        "every image: of a new patient of a class, the sets of all images contain it with probability 1 - alpha or "
        "more. one image: the set of one image of the patient, drawn at random, does (docs/how-to/guarantees.md)."
    )
    source: Text = key("Description of the images that calibrated the sets.", minLength=1)
    folds: Annotated[list[SetsOfFold], Field(max_length=10_000)]
    sets: Annotated[list[SetsOfClass], Field(max_length=3)] = key(
        "Test images of all folds, each by the bounds of its own fold; empty if a fold has none."
    )
    reason: Text | None = key("Reason why there are no sets.", minLength=1)


class RiskCoverageRecord(Record):
    """Error of the most probable class among the most confident images, over the share that is accepted."""

    accepted: Annotated[list[Share], Field(min_length=1, max_length=10_000)]
    error: list[Share]
    lower: list[Number | None] = key("Pointwise 95 % band, from the jackknife over groups.")
    upper: list[Number | None]
    area: ShareValue = key("AURC: mean over images of the error among all images that are accepted no later.")

    @model_validator(mode="after")
    def _of_one_length(self) -> "RiskCoverageRecord":
        if any(len(one) != len(self.accepted) for one in (self.error, self.lower, self.upper)):
            raise ValueError("curves as long as their shares")
        return self


class DeferralPoint(Record):
    """The images with the lowest confidence go to a reader; the decisions on the others."""

    target: _OpenShare = key("Share of the images that chose the cut which lies below it.")
    deferred: ShareValue = key("Share of test images that are deferred.")
    error: ShareValue = key("Error of the most probable class among the images that are not deferred.")
    sensitivity: ShareValue
    specificity: ShareValue
    positives_deferred: ShareValue = key("Share of the positive images that are deferred.")


class RuleOutPoint(Record):
    """Patients whose images are all below a low cut are not read."""

    target: _OpenShare = key("Share of the patients that chose the cut which lie below it.")
    not_read: ShareValue = key("Share of test patients that are not read: the reduction of the case load.")
    false_omission: ShareValue = key("Share of positive patients among those that are not read.")
    sensitivity_lost: ShareValue = key("Share of the positive patients that are not read.")
    rest_not_read: ShareValue = key("Share of the other patients that are not read.")
    n_missed: Count = key("Positive patients that are not read.")
    n_spared: Count = key("Other patients that are not read.")
    spared_per_missed: Number | None = key(
        "n_spared / n_missed, the readings saved for each missed patient; null if none is missed."
    )


class SelectiveRecord(Record):
    """Selective prediction: what a model attains that abstains where it is uncertain."""

    risk_coverage: RiskCoverageRecord
    source: Text = key("Description of the images that chose the cuts.", minLength=1)
    reason: Text | None = key("Reason why there are no cuts.", minLength=1)
    deferral: Annotated[list[DeferralPoint], Field(max_length=1000)] = key(
        "The intervals take the cuts as given, also in rule_out."
    )
    rule_out: Annotated[list[RuleOutPoint], Field(max_length=1000)] = key(
        "One unit for each patient (group_id), by the highest probability of the positive class."
    )
