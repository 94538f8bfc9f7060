"""Summary beside a file of folds, of ``usvit data split``."""

from typing import ClassVar, Literal

from usvit.records.base import Count, FileRecord, Fold, Name, Record, Sha256, key


class FoldSplit(Record):
    """One split of one fold."""

    fold: Fold
    part: Literal["train", "val", "test"] = key("The split.")
    images: Count
    groups: Count
    classes: dict[str, Count] = key("Class -> number of images.")


class FoldsRecord(FileRecord):
    """Folds that were written to the CSV file of the same name."""

    KIND: ClassVar[str] = "folds"
    sha256: Sha256 = key("SHA-256 of the table of folds.")
    manifest_sha256: Sha256 = key("SHA-256 of the images, labels and groups.")
    datasets: list[Name]
    kind: Literal["cv", "train"] = key("cv: k folds. train: one hold-out.")
    scheme: Name
    unit: Name = key("Unit whose images are kept in one split: 'group' or 'image'.")
    seed: int
    n_images: Count
    n_groups: Count
    leaking_groups: Count = key("Groups with images in several splits of a fold.")
    parts: list[FoldSplit]
