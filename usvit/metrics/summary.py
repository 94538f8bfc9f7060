"""From a predictions table to the content of metrics.json (docs/reference/metrics.schema.json)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.metrics.points import confusion, point_estimates
from usvit.metrics.predictions import check_predictions, classes_of

SCHEMA_VERSION = "1.0"


def summarise(table: pd.DataFrame, *, classes: Sequence[str], positive: str) -> dict[str, Any]:
    """Every metric of a run, pooled and by fold, made anew from its predictions alone.

    Two different quantities come out. ``pooled`` takes all test images as one set, each predicted
    by the model that did not see it. ``mean_sd`` averages the folds' own values; its sd (n - 1 in
    the denominator) tells how the folds differ and is no confidence interval, since the folds'
    training images overlap.

    Args:
        table: a predictions table; only its rows of part test count.
        classes: the K class names, in the order that settles ties (see ``points.decide``).
        positive: the class that the headline speaks of.

    Returns:
        A dictionary that JSON can hold: no NaN, what is undefined is None with a reason.

    Raises:
        UsvitError: the table fails ``check_predictions``, holds other classes than ``classes``, or
            has no row of part test; or ``positive`` is not a class.
    """
    classes = list(classes)
    check_predictions(table, "The predictions table")
    if positive not in classes:
        raise unknown("positive class", positive, classes)
    if sorted(classes) != sorted(classes_of(table)):
        raise UsvitError(
            f"The predictions table holds the classes {', '.join(classes_of(table))}; expected {', '.join(classes)}."
        )
    test = table[table["part"] == "test"]
    if test.empty:
        raise UsvitError("The predictions table has no row of part test: there is nothing to measure.")

    index = {name: k for k, name in enumerate(classes)}
    label = test["label"].map(index).to_numpy(np.int64)  # (n,)
    prob = test[[f"prob_{name}" for name in classes]].to_numpy(np.float64)  # (n, K)
    group = test["group_id"].to_numpy(object)
    fold = test["fold"].to_numpy(np.int64)

    def measure(rows: np.ndarray) -> dict[str, Any]:
        return point_estimates(label[rows], prob[rows], group[rows], classes=classes, positive=positive)

    def size(rows: np.ndarray) -> dict[str, int]:
        return {"n_images": int(rows.sum()), "n_groups": len(set(group[rows].tolist()))}

    everything = np.ones(len(test), dtype=bool)
    folds = [{"fold": int(k), **size(fold == k), **measure(fold == k)} for k in np.unique(fold)]
    pooled = measure(everything)
    return {
        "schema_version": SCHEMA_VERSION,
        "positive_class": positive,
        "classes": classes,
        **size(everything),
        "class_counts": {name: int((label == k).sum()) for name, k in index.items()},
        "pooled": pooled,
        "folds": folds,
        "mean_sd": {metric: _mean_sd(pooled[metric], [one[metric] for one in folds]) for metric in pooled},
        "confusion": {"labels": classes, "counts": confusion(label, prob).tolist()},
    }


def _mean_sd(shape: dict[str, Any], folds: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and SD over folds, for one Value or for a Value of each class; ``shape`` tells which."""
    if "value" not in shape:
        return {name: _mean_sd(inner, [one[name] for one in folds]) for name, inner in shape.items()}
    known = [one["value"] for one in folds if one["value"] is not None]
    mean_sd: dict[str, Any] = {
        "mean": float(np.mean(known)) if known else None,
        "sd": float(np.std(known, ddof=1)) if len(known) > 1 else None,
        "n_folds": len(known),
        "n_skipped": len(folds) - len(known),
    }
    if not known:
        mean_sd["reason"] = "undefined in every fold"
    elif len(known) == 1:
        mean_sd["reason"] = "an SD needs at least two folds"
    return mean_sd
