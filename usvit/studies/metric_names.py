"""Names of figures in a study, their titles, and their places in ``metrics.json``."""

from typing import TYPE_CHECKING

from usvit.errors import UsvitError, unknown

if TYPE_CHECKING:
    from usvit.records import MetricsRecord, Value

OVERALL = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc_macro_ovr": "AUC, macro one vs rest",
    "auc_weighted_ovr": "AUC, weighted one vs rest",
    "auc_hand_till": "AUC, Hand-Till",
    "mcc": "MCC",
    "f1_macro": "F1, macro",
    "average_precision_macro": "average precision, macro",
    "brier": "Brier score",
    "log_loss": "log loss",
}
"""Figures over all classes."""

OF_CLASS = {
    "auc": "AUC",
    "average_precision": "average precision",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "ppv": "PPV",
    "npv": "NPV",
    "f1": "F1",
    "brier_vs_rest": "Brier score",
}
"""Figures of one class: ``sensitivity.malignant``; ``.positive`` is the positive class of each run's data."""


def check_figure(name: str) -> str:
    """Return a figure's name as it is.

    Raises:
        UsvitError: The name is unknown (the error names the nearest), or the class of a figure is missing.
    """
    head, _, of_class = name.partition(".")
    if (head in OVERALL and not of_class) or (head in OF_CLASS and of_class):
        return name
    if head in OF_CLASS:
        raise UsvitError(f"The figure '{name}' is of one class: write {head}.positive, or {head}.<class>.")
    if head in OVERALL:
        raise UsvitError(f"The figure '{name}' is over all classes: write {head}.")
    known = [*OVERALL, *(f"{name}.positive" for name in OF_CLASS)]
    raise unknown("figure", name, known, "Figures of one class are written as sensitivity.malignant.")


def title_of(name: str) -> str:
    """Return the title of a figure: ``AUC, macro one vs rest`` or ``sensitivity, malignant``."""
    head, _, of_class = name.partition(".")
    return f"{OF_CLASS[head]}, {of_class}" if of_class else OVERALL[head]


def value_of(metrics: "MetricsRecord", name: str) -> "Value | None":
    """Return the figure of a ``metrics.json`` that should be quoted, or None.

    It is the figure of the headline (the mean within folds) if the headline has it, otherwise the pooled figure.
    """
    head, _, of_class = name.partition(".")
    headline: Value | None = getattr(metrics.headline, head, None)
    if headline is not None and of_class in ("", "positive", metrics.positive_class):
        return headline
    pooled: dict[str, Value] | Value | None = getattr(metrics.pooled, head)
    if not isinstance(pooled, dict):
        return pooled
    chosen = metrics.positive_class if of_class == "positive" else of_class
    return pooled.get(f"{chosen}_vs_rest" if head == "auc" else chosen)
