"""Figures of metrics.json: of one set of images, of the folds, and the headline."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, create_model, model_validator

from usvit.estimate import Estimate
from usvit.figure_table import FIGURES, HEADLINE
from usvit.plain_data import Json
from usvit.records.base import Classes, Count, Fold, InGivenOrder, Record, Share, Text, key, optional
from usvit.records.values import MeanSd, NonNegative, ShareValue

OneFigure = TypeVar("OneFigure", ShareValue, MeanSd)
OneModel = TypeVar("OneModel", bound=Record)
Counts = dict[str, Count]
_OVR: Json = {"propertyNames": {"pattern": "_vs_rest$"}}


def with_figures(figures: Iterable[tuple[str, Any, str]]) -> Callable[[type[OneModel]], type[OneModel]]:
    """Make a record have a field for each figure that it does not declare itself; without any, it stays as it is.

    A record declares the figures that code reads by name. All others follow from ``usvit.figure_table``.

    Args:
        figures: key, type and description of each.
    """

    def extended(model: type[OneModel]) -> type[OneModel]:
        missing = {name: (kind, key(text)) for name, kind, text in figures if name not in model.model_fields}
        if not missing:
            return model
        fields: Any = missing
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )

    return extended


def _all_of(kind: Any, in_0_to_1: Any) -> list[tuple[str, Any, str]]:
    """Return every figure with its type: a figure, or the figures of the classes."""
    kinds = [(row, in_0_to_1 if row.headline else kind) for row in FIGURES]
    return [(row.key, dict[str, one] if row.of_class else one, row.meaning) for row, one in kinds]  # type: ignore[valid-type]


class MainFigures(InGivenOrder, Generic[OneFigure]):
    """Figures of every table of results: each a value with its interval, or mean and SD over folds."""

    accuracy: OneFigure
    balanced_accuracy: OneFigure = key("Mean of the classes' sensitivities.")
    auc_macro_ovr: OneFigure = key("Mean of the classes' one-vs-rest AUCs.")
    auc: dict[str, OneFigure] = key("<class>_vs_rest -> AUC.", **_OVR)
    sensitivity: dict[str, OneFigure]
    specificity: dict[str, OneFigure]

    def figure(self, name: str, of: str) -> OneFigure:
        """Return a figure by its name; that of the class ``of`` if each class has one."""
        found = getattr(self, name)
        figure: OneFigure = found[f"{of}_vs_rest" if name == "auc" else of] if isinstance(found, dict) else found
        return figure


class AllFigures(MainFigures[OneFigure], Generic[OneFigure]):
    """All figures of one set of images. Dictionaries have one entry for each class."""

    ppv: dict[str, OneFigure]
    npv: dict[str, OneFigure]
    f1: dict[str, OneFigure]
    average_precision: dict[str, OneFigure]
    brier_vs_rest: dict[str, OneFigure]
    auc_weighted_ovr: OneFigure = key("One-vs-rest AUCs, weighted by the classes' shares of the images.")
    auc_hand_till: OneFigure = key(
        "Mean of the AUCs of all pairs of classes, each computed on the images of the two classes only."
    )
    f1_macro: OneFigure
    average_precision_macro: OneFigure
    brier: OneFigure = key(
        "Half the sum over classes of the mean squared error of their probabilities; with two classes the usual score."
    )


@with_figures(_all_of(MeanSd, MeanSd))
class MeanSdRecord(AllFigures[MeanSd]):
    """Mean and standard deviation of the folds' own values. The SD is not a confidence interval."""

    mcc: MeanSd
    log_loss: MeanSd


@with_figures(_all_of(Estimate, ShareValue))
class FiguresRecord(AllFigures[ShareValue]):
    """Figures of one set of images."""

    mcc: Estimate = key("Matthews' correlation coefficient over all classes, -1 to 1.")
    log_loss: NonNegative = key("Mean of -ln(probability of the reference class), in nats.")


class FoldFigures(FiguresRecord):
    """Figures of one fold: point estimates, so ci95 is null."""

    fold: Fold = key("Number of the fold; folds of all repeats are numbered consecutively.")
    repeat: Count | None = optional("Complete cross-validation that the fold belongs to, if there are several.")
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)


class TrainingShareRecord(Record):
    """Share of a fold's variance that is due to what its model learnt by chance.

    This share counts twice, since folds train on each other's test images.
    """

    value: Share
    n_pairs: Count = key("Pairs of predictions of one group by two models that were not trained on it.")
    reason: Text | None = optional("Reason why the largest share is assumed.", minLength=1)


@with_figures((row.key, ShareValue, row.meaning) for row in HEADLINE)
class Headline(Record):
    """Figures to quote, computed within the folds and averaged over folds and repeats.

    Their intervals hold under cross-validation (docs/explanation/intervals.md). In a hold-out: the pooled figures.
    """

    auc: ShareValue = key(
        "AUC of the positive class against the rest; sensitivity and specificity are of the same class."
    )
    auc_macro_ovr: ShareValue
    accuracy: ShareValue
    balanced_accuracy: ShareValue
    sensitivity: ShareValue
    specificity: ShareValue
    brier: ShareValue
    n_repeats: Annotated[int, Field(ge=1, le=10_000)]
    n_folds: Annotated[int, Field(ge=1, le=10_000)] = key("Folds of all repeats together: the number of models.")
    training_share: TrainingShareRecord | None = key("Null in a hold-out.")
    explains: Text = key("Explanation of the figures and their intervals.", minLength=1)


class Confusion(Record):
    """Counts by reference label and decision."""

    labels: Classes
    counts: Annotated[list[list[Count]], Field(max_length=1000)] = key(
        "Rows are the reference label, columns the decision; both in the order of labels."
    )

    @model_validator(mode="after")
    def _square(self) -> "Confusion":
        n = len(self.labels)
        if len(self.counts) != n or any(len(row) != n for row in self.counts):
            raise ValueError(f"{n} rows of {n} counts")
        return self
