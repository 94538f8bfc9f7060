"""From a predictions table to the content of metrics.json (docs/reference/metrics.schema.json)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.metrics.cv_headline import headline_section
from usvit.metrics.decided import decided_at
from usvit.metrics.decision_curve import run_decision_curve
from usvit.metrics.headline import figure_points, figures_with_intervals, mean_and_sd
from usvit.metrics.points import confusion
from usvit.metrics.predictions import check_predictions, classes_of, first_repeat
from usvit.metrics.prevalence import prevalence_section
from usvit.metrics.rows import rows_of
from usvit.metrics.sections import (
    calibration_section,
    operating_section,
    patient_section,
    subgroup_section,
    warnings_of,
)

SCHEMA_VERSION = "1.3"


def summarise(
    table: pd.DataFrame,
    *,
    classes: Sequence[str],
    positive: str,
    columns: pd.DataFrame | None = None,
    by: Mapping[str, Sequence[float] | None] | None = None,
    prevalence: float | None = None,
) -> dict[str, Any]:
    """Every metric of a run, pooled and by fold, made again from its predictions alone.

    Several quantities come out. ``headline`` averages the folds' own figures, with an interval that holds under
    cross-validation (``cv_headline``). ``pooled`` takes all test images as one set, each predicted
    by the model that did not see it; its intervals count groups. Of a repeated cross-validation it
    takes the first repeat, and so do all sections but ``folds`` and ``mean_sd``, which hold the folds
    of all repeats. ``mean_sd`` averages the folds' own values; its sd (n - 1 in the denominator) tells
    how the folds differ and is no confidence interval, since the folds' training images overlap.

    Args:
        table: a predictions table. Its rows of part test are measured; those of part val, where it has
            any, choose thresholds and fit the temperature, each for its own fold.
        classes: the K class names, in the order that settles ties (see ``points.decide``).
        positive: the class that the headline speaks of.
        columns: more columns of the images, by dataset and image_id, such as the manifest, for subgroups.
        by: the columns that make subgroups, each with limits that cut it or None; by default those
            of ``sections.SUBGROUP_COLUMNS`` that are there.
        prevalence: a share of positives in (0, 1) at which predictive values are wanted (``at_prevalence``).

    Returns:
        A dictionary that JSON can hold: no NaN, what is undefined is None with a reason. The same rows give the
        same numbers: bootstraps have a fixed seed.

    Raises:
        UsvitError: the table fails ``check_predictions``, holds other classes than ``classes``, or
            has no row of part test; ``positive`` is not a class; a column of ``by`` cannot be used.
    """
    classes = list(classes)
    check_predictions(table, "The predictions table")
    if positive not in classes:
        raise unknown("positive class", positive, classes)
    if sorted(classes) != sorted(classes_of(table)):
        raise UsvitError(
            f"The predictions table holds the classes {', '.join(classes_of(table))}; expected {', '.join(classes)}."
        )
    table = _in_order(table, classes)
    folds = []
    every = rows_of(table, "test", every_repeat=True)
    for k in np.unique(every.fold):
        own = every[every.fold == k]
        size: dict[str, Any] = {"fold": int(k), "n_images": len(own), "n_groups": own.n_groups}
        if "repeat" in table:
            size["repeat"] = int(own.repeat[0])
        folds.append({**size, **figure_points(own.label, own.prob, own.group, classes=classes, positive=positive)})

    everything, table = table, first_repeat(table)  # everything below but the headline needs each image once
    rows = rows_of(table, "test")
    label, prob, group = rows.label, rows.prob, rows.group
    pooled = figures_with_intervals(label, prob, group, classes=classes, positive=positive)
    summary: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "positive_class": positive,
        "classes": classes,
        "n_images": len(rows),
        "n_groups": rows.n_groups,
        "class_counts": {name: int((label == k).sum()) for k, name in enumerate(classes)},
        "class_groups": {name: rows[label == k].n_groups for k, name in enumerate(classes)},
        "warnings": [],
        "headline": headline_section(everything, positive, pooled),
        "pooled": pooled,
        "folds": folds,
        "mean_sd": {metric: mean_and_sd(pooled[metric], [one[metric] for one in folds]) for metric in pooled},
        "confusion": {"labels": classes, "counts": confusion(label, prob).tolist()},
        "patients": patient_section(table, positive),
        "operating_points": operating_section(table, positive),
        "calibration": calibration_section(table, positive),
        "decision_curve": asdict(run_decision_curve(table, positive=positive)),
        "subgroups": subgroup_section(table, positive, columns, by),
    }
    if prevalence is not None:
        decided = decided_at(rows, positive, summary["operating_points"])
        summary["at_prevalence"] = prevalence_section(decided.reference, decided.called, rows.group, prevalence)
    summary["warnings"] = warnings_of(table, summary)
    return {key: listed(value) for key, value in summary.items()}


def _in_order(table: pd.DataFrame, classes: list[str]) -> pd.DataFrame:
    """The table with its prob and logit columns in the order of the classes."""
    numbers = [name for name in table.columns if name.startswith(("prob_", "logit_"))]
    wanted = [f"{kind}_{name}" for kind in ("logit", "prob") for name in classes]
    others = [name for name in table.columns if name not in numbers]
    return table[[*others, *(name for name in wanted if name in numbers)]]


def listed(value: Any) -> Any:
    """Tuples as the lists that JSON makes of them, all the way down."""
    if isinstance(value, dict):
        return {key: listed(inner) for key, inner in value.items()}
    return [listed(inner) for inner in value] if isinstance(value, (list, tuple)) else value
