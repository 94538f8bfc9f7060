"""The record of metrics.json, computed from a predictions table (docs/reference/metrics.schema.json)."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from usvit.config.evaluation import UnitSettings
from usvit.data.splits import contamination_warning
from usvit.errors import UsvitError, unknown
from usvit.evaluation.conformal_sets import conformal_section
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.decisions import decided_at
from usvit.evaluation.flow import prevalence_by_unit
from usvit.evaluation.headline_words import ONE_MODEL, PredictionOrigin
from usvit.evaluation.metrics_sections import (
    SUBGROUP_COLUMNS,
    calibration_section,
    operating_section,
    patient_section,
    run_decision_curve,
    subgroup_section,
    warnings_of,
)
from usvit.evaluation.pooled_figures import figure_points, figures_with_intervals, mean_and_sd_of_all
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.predictions import check_predictions, checked_once, classes_of, first_repeat
from usvit.evaluation.selective_prediction import selective_section
from usvit.evaluation.units import units_of, with_unit_columns
from usvit.metrics.basic import confusion
from usvit.metrics.prevalence import prevalence_section
from usvit.records import Confusion, ContaminationRecord, FiguresRecord, FoldFigures, MetricsRecord

IMAGES: UnitSettings = UnitSettings()


@checked_once()
def summarise(
    table: pd.DataFrame,
    *,
    classes: Sequence[str],
    positive: str,
    columns: pd.DataFrame | None = None,
    by: Mapping[str, Sequence[float] | None] | None = None,
    prevalence: float | None = None,
    origin: PredictionOrigin = ONE_MODEL,
    units: UnitSettings = IMAGES,
) -> MetricsRecord:
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
        units: what a row of all sections is, except of ``patients``; a unit has the value of a column that all its
            images share.

    Returns:
        Undefined values are None with a reason. The same rows give the same numbers, because bootstraps have a fixed
        seed.

    Raises:
        UsvitError: the table fails ``check_predictions``, holds other classes than ``classes``, or
            has no row of part test; ``positive`` is not a class; a column of ``by`` cannot be used; and as
            ``units_of``.
    """
    classes = list(classes)
    check_predictions(table, "The predictions table")
    if positive not in classes:
        raise unknown("positive class", positive, classes)
    if sorted(classes) != sorted(classes_of(table)):
        raise UsvitError(
            f"The predictions table holds the classes {', '.join(classes_of(table))}; expected {', '.join(classes)}."
        )
    images = table = _in_order(table, classes)
    unit = None
    if not units.of_images:
        table, unit = units_of(with_unit_columns(table, columns, *SUBGROUP_COLUMNS, *(by or ())), units, positive)
        columns = None
    every = rows_of(table, "test", every_repeat=True)
    parts = [every[every.fold == k] for k in np.unique(every.fold)]
    by_fold = [figure_points(one.label, one.prob, one.group, classes=classes, positive=positive) for one in parts]
    folds = [
        FoldFigures(
            fold=int(part.fold[0]),
            n_images=len(part),
            n_groups=part.n_groups,
            repeat=int(part.repeat[0]) if "repeat" in table else None,
            **figures.values,
        )
        for part, figures in zip(parts, by_fold, strict=True)
    ]

    everything, table = table, first_repeat(table)  # everything below except the headline needs each image once
    rows = rows_of(table, "test")
    label, prob, group = rows.label, rows.prob, rows.group
    pooled = figures_with_intervals(label, prob, group, classes=classes, positive=positive)
    points = operating_section(table, positive)
    decided = decided_at(rows, positive, points)
    metrics = MetricsRecord(
        positive_class=positive,
        classes=classes,
        n_images=len(rows),
        n_groups=rows.n_groups,
        class_counts={name: int((label == k).sum()) for k, name in enumerate(classes)},
        class_groups={name: rows[label == k].n_groups for k, name in enumerate(classes)},
        warnings=[],
        headline=headline_section(everything, positive, pooled, origin),
        pooled=FiguresRecord(**pooled.values),
        folds=folds,
        mean_sd=mean_and_sd_of_all(by_fold),
        confusion=Confusion(labels=classes, counts=confusion(label, prob).tolist()),
        patients=patient_section(images, positive, origin),
        unit=unit,
        operating_points=points,
        calibration=calibration_section(table, positive),
        decision_curve=run_decision_curve(table, positive=positive),
        subgroups=subgroup_section(table, positive, columns, by),
        conformal=conformal_section(table, positive),
        selective=selective_section(table, positive),
        at_prevalence=None
        if prevalence is None
        else prevalence_section(decided.reference, decided.called, group, prevalence),
        prevalence=prevalence_by_unit(table, positive),
    )
    return metrics.model_copy(update={"warnings": warnings_of(table, metrics)})


def with_contamination(metrics: MetricsRecord, found: Sequence[ContaminationRecord]) -> MetricsRecord:
    """Add contamination to the metrics, and a warning before all others; unchanged if there is none."""
    warning = contamination_warning(found)
    if warning is None:
        return metrics
    said = [warning, *(one for one in metrics.warnings if one != warning)]
    return metrics.model_copy(update={"warnings": said, "contamination": list(found)})


def _in_order(table: pd.DataFrame, classes: list[str]) -> pd.DataFrame:
    """Return the table with its prob and logit columns in the order of the classes."""
    numbers = [name for name in table.columns if name.startswith(("prob_", "logit_"))]
    wanted = [f"{kind}_{name}" for kind in ("logit", "prob") for name in classes]
    others = [name for name in table.columns if name not in numbers]
    return table[[*others, *(name for name in wanted if name in numbers)]]
