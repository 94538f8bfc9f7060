"""``calibration.json`` of ``usvit recalibrate``, as far as it is read (docs/reference/calibration.schema.json)."""

from typing import Annotated

from pydantic import Field, model_validator

from usvit.records.base import Classes, Count, Name, Number, Record, Text

MAX_IMAGES = 1_000_000
_Hashes = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=MAX_IMAGES)]


class FittedTemperature(Record):
    """What the logarithms of the mean probabilities are divided by; None: they stay as they are."""

    value: Annotated[float, Field(ge=1e-6, le=1e6)] | None
    reason: Text | None = None


class FittedThreshold(Record):
    """The operating point of one rule."""

    rule: Annotated[str, Field(min_length=1, max_length=20_000)]
    threshold: Number | None
    reason: Text | None = None


class CalibrationRecord(Record):
    """The whole file; schema 1.0 had no groups and no copy descriptions."""

    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")]
    model_sha256: Name
    positive_class: Name
    classes: Classes
    temperature: FittedTemperature
    thresholds: Annotated[list[FittedThreshold], Field(max_length=1000)]
    n_images: Count
    n_groups: Count
    fitted_on_sha256: _Hashes
    fitted_on_groups_sha256: _Hashes | None = None
    fitted_on_copies: str | None = None

    @model_validator(mode="after")
    def _names_its_positive_class(self) -> "CalibrationRecord":
        if self.positive_class not in self.classes or len(set(self.classes)) != len(self.classes):
            raise ValueError("different classes, of which positive_class is one")
        return self
