"""``ensemble.json``: the members of an ensemble of runs, their weights, and what was chosen for their mean."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from usvit.records.base import (
    Classes,
    Count,
    FileRecord,
    Fold,
    Name,
    Number,
    Record,
    Sha256,
    Share,
    Text,
    key,
    optional,
)
from usvit.records.model import ThresholdRecord, UnitThresholds

MAX_MEMBERS = 1000


class MemberNetwork(Record):
    """The network of a member run that was trained in one fold."""

    fold: Fold
    model_sha256: Sha256 = key("SHA-256 of its model.json.")
    weights_sha256: Sha256 = key("SHA-256 of its model.safetensors.")


class MemberRun(Record):
    """One run of the ensemble. Its files stay where they are; they are checked against these hashes before use."""

    name: Name
    path: Text = key("Folder of the run, relative to that of the ensemble.", minLength=1)
    run_sha256: Sha256 = key("SHA-256 of its run.json.")
    parameters: Count = key("Number of parameters of one network.")
    networks: Annotated[list[MemberNetwork], Field(min_length=1, max_length=10_000)]


class EnsembleFoldRecord(Record):
    """One fold: the weights of its members, and the temperature and thresholds of their weighted mean."""

    fold: Fold
    weights: Annotated[list[Share], Field(min_length=2, max_length=MAX_MEMBERS)] = key(
        "Weight of each member in the mean of the probabilities; they sum to 1."
    )
    n_images: Count = key("Inner validation images of the fold.")
    n_groups: Count
    member_log_loss: list[Number | None] = key(
        "Log loss of each member on the inner validation images; null without any.", minItems=2
    )
    log_loss: Number | None = key("The same of the weighted mean.")
    temperature: Annotated[float, Field(ge=1e-6, le=1e6)] | None = key(
        "Divisor of the logarithm of the mean probabilities. If it is null, none was fitted, and 1 is used."
    )
    temperature_reason: Text | None = key("Reason why there is no temperature.")
    thresholds: Annotated[list[ThresholdRecord], Field(max_length=10_000)]
    unit_thresholds: UnitThresholds | None = optional("Present if the ensemble has a unit (usvit ensemble --unit).")


class EnsembleRecord(FileRecord):
    """Members of an ensemble of runs with the same folds, and the weights of each fold.

    An ensemble holds no networks: 'usvit score' reads those of its members, and refuses them if they were changed.
    """

    KIND: ClassVar[str] = "ensemble"
    usvit_version: Name
    classes: Classes
    positive_class: Name
    weights: Literal["equal", "validation"] = key(
        "equal, or validation: the convex combination with the smallest log loss on the inner validation images of "
        "each fold."
    )
    members: Annotated[list[MemberRun], Field(min_length=2, max_length=MAX_MEMBERS)]
    folds: Annotated[list[EnsembleFoldRecord], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _agrees(self) -> "EnsembleRecord":
        numbers = [one.fold for one in self.folds]
        if numbers != sorted(set(numbers)):
            raise ValueError("folds in ascending order, each once")
        for member in self.members:
            if [one.fold for one in member.networks] != numbers:
                raise ValueError(f"members with a network of every fold, which '{member.name}' has not")
        for one in self.folds:
            if len(one.weights) != len(self.members) or abs(sum(one.weights) - 1) > 1e-6:
                raise ValueError(f"one weight for each member that sum to 1, also in fold {one.fold}")
        return self
