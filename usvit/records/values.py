"""Numbers with their intervals, as all records contain them."""

from typing import Annotated

from pydantic import ConfigDict, Field

from usvit.records.base import Count, Number, Record, Text, key, optional

Interval = Annotated[list[Number], Field(min_length=2, max_length=2, json_schema_extra={"items": {"type": "number"}})]


class PlainValue(Record):
    """Number with its 95 % interval."""

    value: Number | None
    ci95: Interval | None = key(
        "95 % interval, [low, high]. Null if there is none; then 'method' is 'point estimate', or 'reason' says why."
    )
    method: Text | None = optional("Method by which the interval was computed (docs/explanation/intervals.md).")
    reason: Text | None = optional(
        "Reason why the value is null, why there is no interval, or why another method than usual was used.",
        minLength=1,
    )
    warning: Text | None = optional("Reason to read the interval with care.", minLength=1)
    n_groups: Count | None = optional(
        "Groups (patients, clusters of near-duplicates or single images) that the value is computed from; for a "
        "sensitivity those with an image of the class. Absent from a median over cells and from a mean over folds."
    )
    p: Number | None = optional("Two-sided p-value of a difference.", minimum=0, maximum=1)

    def _facts(self) -> dict[str, object]:
        return {"value": self.value, "ci95": self.ci95, "reason": self.reason}


class Value(PlainValue):
    """Number with its 95 % interval, and how the interval was computed."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"value": {"type": "null"}}},
            "then": {"required": ["reason"]},
            "else": {"required": ["method"]},
        }
    )
    p_holm: Number | None = optional(
        "p-value after Holm's correction for all p-values of the section.", minimum=0, maximum=1
    )


NonNegative = Annotated[Value, Field(json_schema_extra={"properties": {"value": {"minimum": 0}}})]
ShareValue = Annotated[Value, Field(json_schema_extra={"properties": {"value": {"minimum": 0, "maximum": 1}}})]


class MeanSd(Record):
    """Mean and standard deviation over folds (n - 1 in the denominator). The SD is not a confidence interval."""

    mean: Number | None
    sd: Number | None = key(minimum=0)
    n_folds: Count = key("Folds whose value is known.")
    n_skipped: Count = key("Folds left out because their value is undefined.")
    reason: Text | None = optional(minLength=1)
