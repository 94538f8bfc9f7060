"""Names of figures in a study: where they stand in ``metrics.json``, and what a reader calls them."""

from typing import Any

from usvit.errors import UsvitError, unknown

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
        UsvitError: it is none (the nearest are named), or a figure of one class names no class.
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
    """What a reader calls it: ``AUC, macro one vs rest``; ``sensitivity, malignant``."""
    head, _, of_class = name.partition(".")
    return f"{OF_CLASS[head]}, {of_class}" if of_class else OVERALL[head]


def value_of(metrics: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The figure of a ``metrics.json`` ({"value", "ci95", ...}) that a reader should quote; None where it has none.

    That is the headline's, the mean within folds, where the headline has the figure; else the pooled one.
    """
    head, _, of_class = name.partition(".")
    headline = metrics.get("headline") or {}
    if head in headline and of_class in ("", "positive", metrics["positive_class"]):
        found: dict[str, Any] = headline[head]
        return found
    value = metrics["pooled"].get(head)
    if of_class and value is not None:
        chosen = metrics["positive_class"] if of_class == "positive" else of_class
        value = value.get(f"{chosen}_vs_rest" if head == "auc" else chosen)
    return value
