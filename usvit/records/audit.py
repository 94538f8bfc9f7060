"""``audit.json`` of ``usvit data audit``."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.config.sections import Unit
from usvit.records.base import Count, FileRecord, Name, Record, Sha256, Share, Text, key, optional
from usvit.records.values import SkippedFile

FLAGS = [
    "text",
    "calipers",
    "colour",
    "doppler",
    "dual_view",
    "blank",
    "letterbox",
    "assumed_range",
    "empty_mask",
    "several_masks",
    "odd_size",
    "odd_aspect",
]
_Group = Annotated[list[Text], Field(max_length=1_000_000, json_schema_extra={"minItems": 2, "uniqueItems": True})]
_Groups = Annotated[list[_Group], Field(max_length=1_000_000)]
_Flag = Annotated[Name, Field(json_schema_extra={"enum": FLAGS})]
_Flags = Annotated[list[_Flag], Field(json_schema_extra={"minItems": 1, "uniqueItems": True})]


class NearDuplicatePair(Record):
    """Verified pair of near-duplicates."""

    first: Text
    second: Text
    similarity: Share = key(
        "Share of the content that agrees after one image is aligned with the other; 1 for identical pixels.",
        exclusiveMinimum=0,
    )
    kind: Name = key(enum=["identical", "same frame", "turned", "flipped", "inverted"])


class KeepCounts(Record):
    """Rows of keep.csv."""

    kept: Count
    dropped: Count


class UnitCount(Record):
    """Lesions, breasts, exams or patients of a data set."""

    n: Count = key("Number of units.")
    classes: dict[Name, Count] = key(
        "Units by class. A unit has the positive class if any of its images has it, otherwise the first class that "
        "occurs."
    )
    several_labels: Count = key("Units whose images have more than one label.")
    images_without: Count = key("Images that have no id of such a unit.")


class AuditRecord(FileRecord):
    """Findings of 'usvit data audit'.

    An image id is the data set's own; in a union of data sets it is <data set>/<image id>, and the name of a data set
    contains no slash.
    """

    KIND: ClassVar[str] = "audit"
    datasets: Annotated[list[Name], Field(min_length=1, max_length=1000)] = key(uniqueItems=True)
    manifest_sha256: Sha256 = key("SHA-256 of the manifest's table. Equal images, labels and groups give equal hashes.")
    n_images: Count = key(minimum=1)
    class_counts: dict[str, Count] = key("Images by class.")
    card_mismatch: Annotated[list[Text], Field(max_length=100_000)] = key(
        "Each difference from the data card, such as 'busi: benign: card 437, found 436'."
    )
    exact_duplicates: _Groups = key("Images with exactly equal pixels.")
    duplicate_groups: _Groups = key("Near-duplicates of one frame, including identical ones, joined transitively.")
    label_conflicts: _Groups = key("Groups of near-duplicates whose images have more than one label.")
    contamination: _Groups = key("Groups of near-duplicates whose images are in more than one data set.")
    possibly_one_patient: dict[str, Count] = key(
        "Data set -> patients with several ids that differ only by case, spaces, leading zeros or a trailing '.0'. The "
        "ids themselves are not written.",
        additionalProperties={"type": "integer", "minimum": 1},
    )
    units: dict[Unit, UnitCount] | None = optional(
        "Unit (lesion, breast, exam, patient) -> its number; only units of which an image has an id."
    )
    lesion_label_conflicts: _Groups | None = optional(
        "Images of each lesion whose images have more than one label; only if an image has a lesion."
    )
    pairs: list[NearDuplicatePair] = key(
        "Every verified pair. Among identical images, each is paired only with the first of them."
    )
    flags: dict[str, _Flags] = key("Image id -> its flags; images without a flag are not listed.")
    flag_counts: dict[_Flag, dict[Name, Count]] = key("Flag -> images with this flag by class.")
    keep: KeepCounts
    skipped: list[SkippedFile] = key("Files that could not be read (only with --skip-bad); they are in no other list.")
    parameters: dict = key(
        "The thresholds that were used, by their names in usvit.data.audit and usvit.data.near_duplicates."
    )
