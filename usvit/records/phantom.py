"""``phantom.json`` beside the images of ``usvit data phantom``."""

from typing import ClassVar, Literal

from usvit.records.base import Count, FileRecord, Name, Record, Share, Text, optional
from usvit.records.base import key as present


class PhantomSpecRecord(Record):
    """Specification of the images: the same specification and generator give the same bytes."""

    n: Count = present("Number of images.", minimum=3)
    seed: int = present(minimum=0)
    size: Count = present("Height and width of the images in pixels.")
    near_duplicates: Share = present("Fraction of near-duplicates.")
    text: Share = present("Fraction of images with burned-in text.")
    calipers: Share = present("Fraction of images with burned-in calipers.")
    ablate: Literal["none", "signs", "lesion"] = present("Information on the class that was removed.")
    scanner: Text | None = optional(
        "Settings of the scanner that all patients share; absent if all are drawn for each patient."
    )
    views: Count | None = optional(
        "Largest number of views of a patient; absent, as the next three, for 1 to 3 views of one lesion."
    )
    lesions: Count | None = optional("Largest number of lesions of a patient.")
    exams: Count | None = optional("Largest number of exams of a patient.")
    sign_views: Count | None = optional("Views of each malignant lesion that show its signs; 0 for all.")


class PhantomRecord(FileRecord):
    """A phantom data set: its specification, its counts and the sources of its model."""

    KIND: ClassVar[str] = "phantom"
    generator_version: Name
    key: Name = present("Short name of specification and generator; it names the folder in the cache.")
    spec: PhantomSpecRecord
    n_images: Count
    n_patients: Count
    class_counts: dict[str, Count] = present("Class -> number of images.")
    n_near_duplicates: Count
    sources: list[Text]
