"""``repeatability.json`` of ``usvit evaluate --repeatability`` and ``usvit retest``."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from usvit.estimate import Estimate
from usvit.records.base import Count, FileRecord, Name, Record, Sha256, Text, key, optional
from usvit.records.units import RowsOfUnit, UnitRecord
from usvit.records.values import NonNegative, ShareValue


class AgreementRecord(Record):
    """Agreement of repeated scores on one scale, with 95 % intervals that count groups."""

    bias: Estimate = key("Mean of the changed score less the original one; null for repeats without an order.")
    within_sd: NonNegative = key("Standard deviation of the scores of one image, lesion or frame.")
    repeatability_coefficient: NonNegative = key(
        "1.96 sqrt(2) within_sd: 95 % of the differences of two scores of one thing are smaller, if they are normally "
        "distributed."
    )
    lower_limit: Estimate = key("Lower limit of agreement of the difference of two scores.")
    upper_limit: Estimate = key("Upper limit of agreement.")
    icc: Estimate = key("Intraclass correlation of the form icc_form.")
    icc_form: Name = key("ICC(1,1) for repeats without an order, ICC(2,1) for an image before and after a change.")


class FlipRecord(Record):
    """Decisions of one operating point on repeated scores."""

    rule: Text = key("Rule of the operating point, or 'most probable class'.", minLength=1)
    n_pairs: Count
    n_flips: Count = key("Pairs of which one score is called positive and the other is not.")
    rate: ShareValue = key("Share of the pairs that flip; the interval counts groups and takes the threshold as given.")
    n_to_positive: Count | None = optional("Images that a change makes positive; only for changes.")
    n_to_negative: Count | None = optional("Images that a change makes negative; only for changes.")


class AgreementScales(Record):
    """Agreement on both scales."""

    probability: AgreementRecord = key("Probability of the positive class.")
    logit: AgreementRecord = key("Log-odds of the positive class.")


class LeftOutRepeats(Record):
    """Images or pairs that are no repeats of one network, and why."""

    n: Count = key("Number of images or pairs.", minimum=1)
    reason: Text = key(minLength=1)
    example: Text | None = key("The first of them, as DATASET/IMAGE.")


class RepeatsRecord(Record):
    """Repeats that the predictions contain, such as copies of one frame."""

    column: Name = key("Column with the same value for all repeats of one object.")
    only_copies: bool = key("true: only groups of near-duplicates, not of patients.")
    n_sets: Count = key("Things that were scored at least twice by one network.", minimum=1)
    n_images: Count = key("Images of these.", minimum=2)
    n_pairs: Count = key("Pairs of images of one thing.", minimum=1)
    n_groups: Count = key("Groups (patients or clusters of near-duplicates) of these images.", minimum=1)
    n_patients: Count | None = key("Known patients among them; null without patient ids.")
    largest_set: Count = key("Images of the largest set.", minimum=2)
    n_identical: Count | None = key("Pairs with identical pixels; null if the pixel hashes are not known.")
    left_out: list[LeftOutRepeats] = key(
        "Images without a partner, pairs of different networks; empty if there are none."
    )
    scales: AgreementScales
    flips: list[FlipRecord]
    undecided: dict[str, Text] = key("Rule without decisions -> the reason.")


class ChangeRecord(Record):
    """Agreement of the scores of images with those of the same images after one controlled change."""

    change: Name = key("Kind of change.")
    strength: Name
    n_images: Count = key("Images to which it was applied.")
    n_groups: Count
    left_out: list[LeftOutRepeats]
    scales: AgreementScales | None = key("Null if there are too few groups; reason says so.")
    flips: list[FlipRecord]
    reason: Text | None = key(minLength=1)


class RepeatabilityRecord(RowsOfUnit, FileRecord):
    """How far the scores of a network differ between repeats of one image, lesion or frame."""

    KIND: ClassVar[str] = "repeatability"
    name: Name = key("Name of the run or table.")
    positive_class: Name
    repeats: RepeatsRecord | None = key("Repeats in the predictions; null if changes were scored.")
    changes: Annotated[list[ChangeRecord], Field(max_length=10_000)] | None = key(
        "Controlled changes; null if the repeats are those of the predictions."
    )
    most_flips: dict[str, Text] | None = key("Rule -> the change with the most flips, in words; null for repeats.")
    weights_sha256: dict[str, Sha256] | None = key("Fold -> SHA-256 of its weights; null if no network ran.")
    unit: UnitRecord | None = optional("What a row is, which keys of images count; absent for images.")
    warnings: list[Text] = key("Sentences for a reader of the figures; empty if there are none.")
    created_with: Text

    @model_validator(mode="after")
    def _has_one_content(self) -> "RepeatabilityRecord":
        if (self.repeats is None) == (self.changes is None):
            raise ValueError("either repeats or changes")
        return self
