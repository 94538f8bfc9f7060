"""The unit of figures and thresholds: patients, exams, breasts or lesions, whose images give one probability."""

from typing import TYPE_CHECKING, Literal

from usvit.records.base import Count, Name, Number, Record, Text, key


class ImagesPerUnit(Record):
    """Number of test images of a unit."""

    least: Count = key(minimum=1)
    median: Number = key(minimum=1)
    most: Count = key(minimum=1)


class UnitRecord(Record):
    """What one row of the figures is, and how the images of a unit became one row."""

    unit: Literal["file", "lesion", "breast", "exam", "patient"] = key("The unit that n_images counts elsewhere.")
    pooling: Name = key("Probability of a unit: mean, max, top-K (mean of the K highest), noisy-or or attention.")
    labels: Literal["any", "lesion", "refuse"] = key(
        "Label of a unit with images of several labels: any: the first of label_order that one of the images has. "
        "lesion: the images of a lesion agree, and of several lesions as any. refuse: all images of a unit agree."
    )
    label_order: list[Name]
    n_units: Count = key("Tested units.", minimum=1)
    n_images: Count = key("Test images of these units.", minimum=1)
    images_per_unit: ImagesPerUnit
    n_mixed: Count = key("Tested units with images of several labels.")
    n_images_left_out: Count = key("Test images that do not name their unit.")
    reason: Text | None = key("Which images were left out; null if there are none.", minLength=1)


class RowsOfUnit:
    """Figures whose rows are images, or the units that ``unit`` names."""

    if TYPE_CHECKING:
        unit: UnitRecord | None

    @property
    def row(self) -> str:
        """What one row is: ``image``, or the unit."""
        return "image" if self.unit is None else self.unit.unit
