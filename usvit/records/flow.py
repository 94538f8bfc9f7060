"""The flow of images into a test, and the prevalence of the positive class among them."""

from typing import Literal

from pydantic import model_validator

from usvit.records.base import Count, Record, Text, key, optional
from usvit.records.values import ShareValue


class FlowStep(Record):
    """One box of a flow diagram."""

    what: Text = key("What these are, or why they were left out.", minLength=1)
    left_out: bool = key("Whether these were left out of those of the step before.")
    n: Count
    n_lesions: Count | None = optional(
        "Lesions that are known; of a step that left images out, those with no image left."
    )
    n_patients: Count | None = optional(
        "Patients that are known; of a step that left images out, those with no image left."
    )


class FlowRecord(Record):
    """Flow from what was found to what was tested. What is kept is what there was, less all that was left out."""

    of: Literal["images", "labels"] = key("What n counts. Labels: rows or ids of a table of labels.")
    steps: list[FlowStep] = key(minItems=1)

    @model_validator(mode="after")
    def _adds_up(self) -> "FlowRecord":
        for name in ("n", "n_lesions", "n_patients"):
            left: int | None = None
            for step in self.steps:
                number = getattr(step, name)
                if number is None:
                    continue
                if step.left_out and left is not None:
                    left -= number
                elif left is not None and number != left:
                    raise ValueError(f"{name} that adds up: {left} are left before the step {step.what!r} of {number}")
                else:
                    left = number
        return self


class UnitPrevalence(Record):
    """Share of the positive class among the tested images, lesions or patients."""

    unit: Literal["image", "lesion", "patient"] = key("What is counted. Image: a row of the table of predictions.")
    n: Count = key("Units.", minimum=1)
    n_positive: Count = key("Units with an image of the positive class.")
    n_images_without_id: Count = key("Tested images that do not say to which unit they belong; they are not counted.")
    share: ShareValue
