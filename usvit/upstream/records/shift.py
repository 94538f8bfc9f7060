"""``shift.json`` of ``usvit study shift``: figures on sets that were left out of the training."""

from typing import ClassVar, Literal

from usvit.estimate import Estimate, Interval
from usvit.records.base import Classes, Count, FileRecord, Name, Number, Record, Share, Text, key, optional
from usvit.records.seen_images import ContaminationRecord
from usvit.records.values import ShareValue


class ShiftSet(Record):
    """One of the sets, each of which is left out once."""

    name: Name
    datasets: list[Name] = key("Data cards of its images.", minItems=1)
    n_images: Count = key(minimum=1)
    n_groups: Count = key("Patients, clusters of near-duplicates or single images.", minimum=1)
    positive_groups: Count
    negative_groups: Count
    class_counts: dict[str, Count]
    positive_share: Share = key("Share of positive images.")


class ShiftCell(Record):
    """AUC of the networks that were trained without one set, on the images of one set."""

    left_out: Name
    tested: Name
    external: bool = key(
        "true: the networks have not been trained on this set. false: they have, and each is tested on images that "
        "were held out of its training."
    )
    n_images: Count
    n_groups: Count
    auc: ShareValue


class ShiftSide(Record):
    """Figures on one side of the comparison, at the thresholds and calibration that were fixed in training."""

    n_images: Count
    n_groups: Count
    auc: ShareValue = key("Positive class against the rest.")
    sensitivity: ShareValue
    specificity: ShareValue
    slope: Estimate = key("Slope of the calibrated log-odds; 1 is perfect.")
    observed_expected: Estimate = key("Positive images divided by their expected number; 1 is perfect.")
    ppv: ShareValue = key("At the prevalence of this file, by Bayes' rule.")
    npv: ShareValue = key("At the prevalence of this file, by Bayes' rule.")


class ShiftDeployed(ShiftSide):
    """The mean of all networks, with the threshold that 'usvit score' uses."""

    threshold: Number | None = key("null if there is none; 'origin' says why.")
    origin: Text = key("Rule and images on which the threshold was chosen.")


class ShiftChange(Record):
    """External minus internal figures of single networks, which are on different patients."""

    auc: Estimate
    sensitivity: Estimate
    specificity: Estimate


class ShiftPaired(Record):
    """External minus internal AUC on the same images of the left-out set."""

    auc: Estimate
    n_images: Count


class ShiftSpread(Record):
    """Median and 2.5 to 97.5 % of a figure over draws of patients."""

    median: Number | None
    interval: Interval | None
    n_draws: Count


class ShiftRecalibration(Record):
    """Recalibration on some patients of the left-out set, judged on its other patients."""

    n_patients: Count
    fitted: Literal["frozen", "temperature", "platt"] = key(
        "frozen: the unchanged model on the same other patients; temperature and platt: that scaling, and the "
        "threshold by the same rule."
    )
    n_draws: Count
    n_one_sided: Count = key("Draws without a positive or a negative image, which are left out.")
    n_unfitted: Count = key("Draws in which the scaling does not exist, so that the probabilities stay unchanged.")
    sensitivity: ShiftSpread
    specificity: ShiftSpread
    slope: ShiftSpread
    observed_expected: ShiftSpread


class ShiftSkipped(Record):
    """A number of patients on which the left-out set cannot be recalibrated."""

    n_patients: Count
    reason: Text


class ShiftRow(Record):
    """One set that was left out of the training."""

    left_out: Name
    run: Name = key("Its training: the folder of the run.")
    trained_on: list[Name] = key(minItems=1)
    n_networks: Count = key(minimum=1)
    internal: ShiftSide = key("Single networks on held-out images of the sets that they were trained on.")
    external: ShiftSide = key("The mean of the same single networks, on all images of the left-out set.")
    change: ShiftChange
    paired: ShiftPaired
    deployed: ShiftDeployed
    recalibration: list[ShiftRecalibration]
    skipped: list[ShiftSkipped]


class PublishedShift(Record):
    """Published figure beside which ours stand; it is not a figure of usvit."""

    network: Text
    trained_on: Text
    tested_on: Text
    auc: Text
    sensitivity: Text | None = optional()
    source: Text
    note: Text | None = optional()


class ShiftRecord(FileRecord):
    """Leave-one-set-out measurement of shift, as 'usvit study shift' writes it.

    Intervals are 95 %, respect patients, and are of new patients for these networks.
    """

    KIND: ClassVar[str] = "shift"
    command: Text
    usvit_version: Name
    by: Name | None = key("Column whose values are the sets; null if each given data set is one.")
    kind: Literal["cv", "train"] = key("cv: each training is a cross-validation of the other sets; train: a hold-out.")
    recipe: Name | None
    model: Name
    seed: Count
    classes: Classes
    positive_class: Name
    rule: Name = key("Rule of the frozen thresholds.")
    prevalence: Share = key("Prevalence of ppv and npv.")
    prevalence_given: bool = key("false: it is the share of positive images of all sets together.")
    n_draws: Count = key("Draws of patients for each size.")
    sets: list[ShiftSet] = key(minItems=2)
    matrix: list[ShiftCell] = key(minItems=4)
    rows: list[ShiftRow] = key(minItems=2)
    published: list[PublishedShift]
    contamination: list[ContaminationRecord]
    says: list[Text] = key("Sentences on what the figures show and do not show.")
