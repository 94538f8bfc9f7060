"""Content of metrics.json, computed from a predictions table (docs/reference/metrics.schema.json)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from usvit.data.splits import contamination_warning
from usvit.errors import UsvitError, unknown
from usvit.estimate import content_of
from usvit.evaluation.conformal_sets import conformal_section
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.decisions import decided_at
from usvit.evaluation.headline_words import ONE_MODEL, PredictionOrigin
from usvit.evaluation.metrics_sections import (
    calibration_section,
    operating_section,
    patient_section,
    run_decision_curve,
    subgroup_section,
    warnings_of,
)
from usvit.evaluation.pooled_figures import figure_points, figures_with_intervals, mean_and_sd
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.predictions import check_predictions, classes_of, first_repeat
from usvit.evaluation.selective_prediction import selective_section
from usvit.metrics.basic import confusion
from usvit.metrics.prevalence import prevalence_section
from usvit.records import ContaminationRecord, MetricsRecord, OperatingPointRecord


def summarise(
    table: pd.DataFrame,
    *,
    classes: Sequence[str],
    positive: str,
    columns: pd.DataFrame | None = None,
    by: Mapping[str, Sequence[float] | None] | None = None,
    prevalence: float | None = None,
    origin: PredictionOrigin = ONE_MODEL,
) -> dict[str, Any]:
    """Compute every metric of a run, pooled and by fold, from its predictions alone.

    ``headline`` averages the figures of the folds, with an interval that is valid under cross-validation
    (``cross_validation_headline``). ``pooled`` takes all test images as one set, each predicted by the model that was
    not trained on it; its intervals count groups. For a repeated cross-validation it uses the first repeat, as do all
    sections except ``folds`` and ``mean_sd``, which contain the folds of all repeats. ``mean_sd`` averages the values
    of the folds; its sd (n - 1 in the denominator) shows how the folds differ and is not a confidence interval, because
    the training images of the folds overlap.

    Args:
        table: a predictions table. Rows of split test are measured; rows of split val, if there are any, choose
            thresholds and fit the temperature, each for its own fold.
        classes: the K class names, in the order that resolves ties (see ``basic.decide``).
        positive: the class of the headline.
        columns: more columns of the images, by dataset and image_id, such as the manifest, for subgroups.
        by: the columns that make subgroups, each with limits that cut it or None; by default those
            of ``metrics_sections.SUBGROUP_COLUMNS`` that exist.
        prevalence: a share of positives in (0, 1) at which predictive values are computed (``at_prevalence``).
        origin: what gave the predictions, for the text of the headline.

    Returns:
        A dictionary for JSON: no NaN; undefined values are None with a reason. The same rows give the same numbers,
        because bootstraps have a fixed seed.

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

    everything, table = table, first_repeat(table)  # everything below except the headline needs each image once
    rows = rows_of(table, "test")
    label, prob, group = rows.label, rows.prob, rows.group
    pooled = figures_with_intervals(label, prob, group, classes=classes, positive=positive)
    summary: dict[str, Any] = {
        "schema_version": MetricsRecord.VERSION,
        "positive_class": positive,
        "classes": classes,
        "n_images": len(rows),
        "n_groups": rows.n_groups,
        "class_counts": {name: int((label == k).sum()) for k, name in enumerate(classes)},
        "class_groups": {name: rows[label == k].n_groups for k, name in enumerate(classes)},
        "warnings": [],
        "headline": headline_section(everything, positive, pooled, origin),
        "pooled": pooled,
        "folds": folds,
        "mean_sd": {metric: mean_and_sd(pooled[metric], [one[metric] for one in folds]) for metric in pooled},
        "confusion": {"labels": classes, "counts": confusion(label, prob).tolist()},
        "patients": patient_section(everything, positive, origin),
        "operating_points": operating_section(table, positive),
        "calibration": calibration_section(table, positive),
        "decision_curve": asdict(run_decision_curve(table, positive=positive)),
        "subgroups": subgroup_section(table, positive, columns, by),
        "conformal": conformal_section(table, positive),
        "selective": selective_section(table, positive),
    }
    if prevalence is not None:
        points = [OperatingPointRecord.model_validate(content_of(one)) for one in summary["operating_points"]]
        decided = decided_at(rows, positive, points)
        summary["at_prevalence"] = prevalence_section(decided.reference, decided.called, rows.group, prevalence)
    summary["warnings"] = warnings_of(table, summary)
    content: dict[str, Any] = content_of(summary)
    return content


def with_contamination(metrics: dict[str, Any], found: Sequence[ContaminationRecord]) -> dict[str, Any]:
    """Add contamination to the content of metrics.json, and a warning before all others; unchanged if there is none."""
    warning = contamination_warning(found)
    if warning is None:
        return metrics
    said = [warning, *(one for one in metrics["warnings"] if one != warning)]
    return {**metrics, "warnings": said, "contamination": [one.content() for one in found]}


def _in_order(table: pd.DataFrame, classes: list[str]) -> pd.DataFrame:
    """Return the table with its prob and logit columns in the order of the classes."""
    numbers = [name for name in table.columns if name.startswith(("prob_", "logit_"))]
    wanted = [f"{kind}_{name}" for kind in ("logit", "prob") for name in classes]
    others = [name for name in table.columns if name not in numbers]
    return table[[*others, *(name for name in wanted if name in numbers)]]
