"""A number with its 95 % confidence interval: statistics return it, records contain it, and renderers show it."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    Strict,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import WithJsonSchema

from usvit.plain_data import Json
from usvit.representation import Summarised

_Bounded = Annotated[float, Field(ge=-1e15, le=1e15)]
Interval = Annotated[
    tuple[_Bounded, _Bounded],
    Strict(False),  # files contain a list
    WithJsonSchema({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
]
"""Low and high end."""
Count = Annotated[int, Field(ge=0, le=10**12)]
Share = Annotated[float, Field(ge=0, le=1)]
_Text = Annotated[str, Field(max_length=20_000)]
_SCHEMA: Json = {
    "if": {"properties": {"value": {"type": "null"}}},
    "then": {"required": ["reason"]},
    "else": {"required": ["method"]},
}


def _given(description: str = "", *, null: bool = False, **schema: Any) -> Any:
    """Declare a key that only some estimates have: without ``null``, None leaves it out of a file."""
    return Field(None, description=description or None, json_schema_extra={"x-null": null, **schema})


class Estimate(Summarised, BaseModel):
    """Number with its 95 % interval, and how the interval was computed."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True, json_schema_extra=_SCHEMA)

    value: _Bounded | None
    ci95: Interval | None = Field(
        description="95 % interval, [low, high]. Null if there is none; then 'method' is 'point estimate', or 'reason' "
        "says why."
    )
    method: _Text | None = _given("Method by which the interval was computed (docs/explanation/intervals.md).")
    reason: _Text | None = _given(
        "Reason why the value is null, why there is no interval, or why another method than usual was used.",
        minLength=1,
    )
    warning: _Text | None = _given("Reason to read the interval with care.", minLength=1)
    n_groups: Count | None = _given(
        "Groups (patients, clusters of near-duplicates or single images) that the value is computed from; for a "
        "sensitivity those with an image of the class. Absent from a median over cells and from a mean over folds."
    )
    p: _Bounded | None = _given("Two-sided p-value of a difference.", minimum=0, maximum=1)
    p_holm: _Bounded | None = _given(
        "p-value after Holm's correction for all p-values of the section.", minimum=0, maximum=1
    )

    _keys: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_keys(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(given)
        if isinstance(given, Mapping):
            absent = {key for key in _never_null(cls) if getattr(found, key) is None}
            found._keys = tuple(key for key in given if key not in absent)
            found.__pydantic_fields_set__.difference_update(absent)
        return found

    @model_serializer(mode="wrap")
    def _in_order(self, handler: SerializerFunctionWrapHandler) -> Json:
        content: Json = handler(self)
        return {key: content[key] for key in self._keys if key in content} | content

    @classmethod
    def of(cls, estimate: "Estimate", **more: Any) -> Self:
        """Return an estimate as one of this class, with ``more`` of its keys."""
        return cls(**estimate.content(), **more)

    def replace(self, **changes: Any) -> Self:
        """Return this estimate with other values of some keys."""
        return type(self)(**self.content() | changes)

    def without(self, *keys: str) -> Self:
        """Return this estimate without some keys."""
        return type(self)(**{key: one for key, one in self.content().items() if key not in keys})

    def with_warning(self, warning: str) -> Self:
        """Return this estimate with one more warning."""
        return self.replace(warning="; ".join(filter(None, [self.warning, warning])))

    def content(self) -> Json:
        """Return the keys of the file: those that the estimate was made of, in their order."""
        return {key: getattr(self, key) for key in self._keys}

    def _facts(self) -> dict[str, object]:
        return {"value": self.value, "ci95": self.ci95, "reason": self.reason}


@functools.cache
def _never_null(model: type[Estimate]) -> frozenset[str]:
    """Return the keys that are left out instead of null."""
    extras = {name: field.json_schema_extra for name, field in model.model_fields.items()}
    return frozenset(name for name, extra in extras.items() if isinstance(extra, dict) and extra.get("x-null") is False)


class PairedAreas(BaseModel):
    """Mean AUCs within folds of both runs, from whose logits the interval and p of their difference follow."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)

    a: Share
    b: Share
    error_a: Annotated[_Bounded, Field(gt=0)] = Field(
        description="Standard error, with the training share of the difference."
    )
    error_b: Annotated[_Bounded, Field(gt=0)]
    correlation: Annotated[_Bounded, Field(ge=-1, le=1)] = Field(description="Correlation of the two estimates.")


class Difference(Estimate):
    """Difference of two runs with its interval, and what intervals of other levels follow from."""

    value: Annotated[float, Field(ge=-1, le=1)] | None
    n_folds: Count | None = _given(minimum=1)
    n_skipped: Count | None = _given("Folds in which an AUC is undefined.")
    n_repeats: Count | None = _given(minimum=1)
    training_share: Share | None = _given(
        "Share of the variance within folds that is due to what the models learnt by chance; this share counts twice."
    )
    p: Share | None = _given("Two-sided p-value of a difference; absent if it cannot be computed.", null=True)
    p_holm: Share | None = _given("p-value after Holm's correction over the pairs.", null=True)
    error: Annotated[_Bounded, Field(ge=0)] | None = _given(
        "Standard error of a difference over folds, from which intervals of other levels follow."
    )
    freedom: Annotated[_Bounded, Field(ge=0)] | None = _given("Degrees of freedom of Student's t.")
    areas: PairedAreas | None = _given("Absent if an AUC is 0 or 1: the interval is symmetric then.")
