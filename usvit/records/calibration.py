"""``calibration.json`` of ``usvit recalibrate``."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from usvit.estimate import Estimate, Interval
from usvit.records.base import Classes, Count, FileRecord, Name, Number, Record, Share, Text, key, optional
from usvit.records.metrics_external import SeenAnswer
from usvit.records.units import UnitRecord

_MAX_IMAGES = 1_000_000
_Hashes = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=_MAX_IMAGES)]
_PERCENTILES = "Percentiles over resampled groups"


class FittedTemperature(Record):
    """Temperature of the networks' mean probability."""

    value: Annotated[float, Field(ge=1e-6, le=1e6)] | None = key(
        "calibrated = softmax(log(mean probability of the networks) / value); null: the probabilities are not changed."
    )
    ci95: Interval | None = key(f"{_PERCENTILES}.")
    reason: Text | None = key("Reason why there is no temperature.", minLength=1)


class CorrectedShare(Estimate):
    """Sensitivity or specificity at a threshold that was chosen on the same images."""

    value: Share | None
    corrected: Share | None = key(
        "The value minus the optimism of choosing and evaluating on the same images (bootstrap of groups)."
    )


class FittedThreshold(Record):
    """Operating point of one rule."""

    rule: Annotated[str, Field(min_length=1, max_length=20_000)]
    threshold: Number | None = key(
        "An image is positive if the calibrated probability of the positive class is at least this."
    )
    ci95: Interval | None = key(f"{_PERCENTILES}; null if the threshold is fixed, or if too few resamples have one.")
    reason: Text | None = key(minLength=1)
    sensitivity: CorrectedShare | None = optional()
    specificity: CorrectedShare | None = optional()


class SetBound(Record):
    """Bound of the conformal sets for one of the two classes: the positive one, or the rest."""

    bound: Share | None = key(
        "The positive class is in the set of an image if its calibrated probability is at least the bound; the rest is "
        "in the set if the calibrated probability of the positive class is at most the bound. Null without sets."
    )
    n_groups: Count = key("Groups with an image of the class, which the bound comes from.")
    n_needed: Count = key("The fewest groups that alpha needs.", minimum=1)
    coverage: Interval | None = key(
        "The guarantee is an average over calibrations. The coverage of one calibration with so many groups lies in "
        "this range with probability 0.9."
    )


class ConformalFit(Record):
    """Conformal prediction sets of the positive class against the rest (docs/how-to/guarantees.md)."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = key(
        "Of new patients of either class, at most this share have an image, or a mean over images, whose set does not "
        "contain the class; on average over calibrations, if new and calibration patients are exchangeable."
    )
    guarantee: Literal["every image"]
    positive: SetBound
    rest: SetBound
    reason: Text | None = key("Reason why there are no sets.", minLength=1)


class FittedUnits(Record):
    """Operating points of units, such as patients, that were chosen on the same images."""

    units: UnitRecord = key("The unit, and the images and units on which the thresholds were chosen.")
    thresholds: Annotated[list[FittedThreshold], Field(max_length=1000)] = key(
        "A unit is positive if the pooled calibrated probability of its images is at least the threshold."
    )


class CalibrationRecord(FileRecord):
    """Temperature, thresholds and conformal sets that were fitted on local labels (usvit recalibrate).

    The model is not changed: usvit score and usvit evaluate take this file with --calibration.
    """

    KIND: ClassVar[str] = "calibration"
    model_sha256: Name = key(
        "SHA-256 of the set of networks whose scores it was fitted on. The file is refused for other networks."
    )
    positive_class: Name
    classes: Classes
    temperature: FittedTemperature
    thresholds: Annotated[list[FittedThreshold], Field(max_length=1000)] = key(minItems=1)
    unit_thresholds: FittedUnits | None = optional("Present if the fit has a unit (usvit recalibrate --unit).")
    conformal: ConformalFit = key("")
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    positive_groups: Count = key("Groups with a positive image.", minimum=1)
    negative_groups: Count = key("Groups with a negative image.", minimum=1)
    said: list[Text] = key("Sentences that explain the intervals.")
    class_counts: dict[str, Count]
    n_seen_images_left_out: Count
    fitted_on_sha256: _Hashes = key(
        "Pixel hashes of the images that it was fitted on: usvit evaluate refuses these images and their groups."
    )
    fitted_on_copies: str = key(
        "Near-duplicate descriptions of the images that it was fitted on, about 1 kB each. Images of scored sets "
        "without descriptions have none.",
        contentEncoding="base64",
    )
    seen: SeenAnswer = key("Result of the search for images seen in training.")
    fitted_on_groups_sha256: _Hashes = key("SHA-256 of the groups' pseudonyms.")
    created_with: Text

    @model_validator(mode="after")
    def _names_its_positive_class(self) -> "CalibrationRecord":
        if self.positive_class not in self.classes or len(set(self.classes)) != len(self.classes):
            raise ValueError("different classes, of which positive_class is one")
        return self
