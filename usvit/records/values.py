"""Numbers with their intervals, as all records contain them."""

from typing import Annotated

from pydantic import Field

from usvit.estimate import Estimate
from usvit.records.base import Count, Number, Record, Text, key, optional

NonNegative = Annotated[Estimate, Field(json_schema_extra={"properties": {"value": {"minimum": 0}}})]
ShareValue = Annotated[Estimate, Field(json_schema_extra={"properties": {"value": {"minimum": 0, "maximum": 1}}})]


class SkippedFile(Record):
    """File that could not be read."""

    path: Text
    reason: Text


class MeanSd(Record):
    """Mean and standard deviation over folds (n - 1 in the denominator). The SD is not a confidence interval."""

    mean: Number | None
    sd: Number | None = key(minimum=0)
    n_folds: Count = key("Folds whose value is known.")
    n_skipped: Count = key("Folds left out because their value is undefined.")
    reason: Text | None = optional(minLength=1)
