"""Sections of metrics.json: operating points, calibration, decision curve, subgroups, patients, and warnings.

Each function converts a predictions table to the record of a section. A section that cannot be computed contains the
reason.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usvit.config.evaluation import UnitSettings
from usvit.errors import LeakageError, UsvitError
from usvit.estimate import Estimate
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.headline_words import ONE_MODEL, PredictionOrigin
from usvit.evaluation.pooled_figures import figures_with_intervals
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.predictions import classes_of, first_repeat
from usvit.evaluation.recalibration import FoldFit, Method, Platt, Temperature, recalibrate
from usvit.evaluation.subgroup_differences import correct_after_holm, level_differences
from usvit.evaluation.subgroups import NOT_RECORDED, levels_of, subgroups
from usvit.evaluation.threshold_procedure import (
    draw_procedure,
    procedure_from_folds,
    procedure_of,
    why_no_bootstrap,
)
from usvit.evaluation.thresholds import choosing_rows, operating_points
from usvit.evaluation.units import units_of
from usvit.metrics.bootstrap import FigureValues
from usvit.metrics.calibration_statistics import (
    N_BINS,
    brier,
    calibration_line,
    log_odds,
    reliability,
    top_label_reliability,
)
from usvit.metrics.checks import group_codes
from usvit.metrics.decision_curves import THRESHOLDS, decision_curve
from usvit.metrics.proportions import ShareInterval, clustered_share, point
from usvit.metrics.support import few_groups_sentences
from usvit.metrics.threshold_choice import RULES, outcome
from usvit.metrics.threshold_choice import Rule as ThresholdRule
from usvit.records import (
    CalibrationOfFold,
    ClassCalibration,
    ClassifierCalibrationRecord,
    DecisionCurve,
    FiguresRecord,
    Headline,
    MetricsRecord,
    OperatingPointRecord,
    PatientHeadline,
    Patients,
    PointOfFold,
    PooledCalibration,
    RecalibratedRecord,
    Recalibration,
    ScalingOfFold,
    Subgrouping,
)

SUBGROUP_COLUMNS: dict[str, list[float] | None] = {
    "dataset": None,
    "device": None,
    "birads": None,
    "lesion_size_mm": [10.0, 20.0],
}
"""Default subgroups, if the columns exist; sizes are cut at the limits of stages T1b and T1c (AJCC, 8th edition)."""
NO_PATIENT_ID = "No image has a patient id"


def operating_section(table: pd.DataFrame, positive: str) -> list[OperatingPointRecord]:
    """Compute the operating points of ``RULES`` by fold, pooled, and as a procedure.

    ``procedure`` holds the pooled figures with intervals that include the choice of the thresholds. It is None for a
    fixed threshold and if nothing is pooled. The intervals of ``pooled`` are conditional on these thresholds.

    If a split does not separate groups, no image may choose a threshold: the section then contains the reason instead
    of thresholds.
    """
    test = rows_of(table, "test")
    try:
        points = operating_points(table, positive=positive)
    except LeakageError as error:
        fixed = [rule for rule in RULES if rule.kind == "fixed"]
        points = [_no_point(rule, test, str(error)) for rule in RULES if rule.kind != "fixed"]
        points += operating_points(table, positive=positive, rules=fixed)
    k = test.index(positive)
    chooser = choosing_rows(table)[1]
    there = [rule for rule, one in zip(RULES, points, strict=True) if rule.kind != "fixed" and one.pooled is not None]
    why = {rule: why_no_bootstrap(rule, chooser, k) for rule in there}
    chosen = [rule for rule in there if not why[rule]]
    drawn = draw_procedure(test, chooser, k, chosen) if chosen else np.empty((0, 0, 4))
    found = []
    for rule, one in zip(RULES, points, strict=True):
        if one.pooled is None:
            found.append(one)
            continue
        threshold = {fold.fold: fold.threshold for fold in one.folds}
        called = test.prob[:, k] >= np.array([threshold[int(fold)] for fold in test.fold])
        pooled, procedure = outcome(test.label == k, called, test.group, interval=clustered_share), None
        if rule in chosen:
            procedure = procedure_of(pooled, drawn[:, chosen.index(rule)])
        elif reason := why.get(rule):
            procedure = procedure_from_folds(rule, reason, pooled, test, called, chooser, k)
        found.append(one.model_copy(update={"pooled": pooled, "procedure": procedure}))
    return found


def _no_point(rule: ThresholdRule, test: Rows, reason: str) -> OperatingPointRecord:
    folds = [
        PointOfFold(fold=int(k), threshold=None, reason=reason, chosen_on=None, on_test=None, target_reached=None)
        for k in np.unique(test.fold)
    ]
    return OperatingPointRecord(
        rule=rule.name, source="none", folds=folds, pooled=None, reason=reason, n_below_target=None, procedure=None
    )


def calibration_section(table: pd.DataFrame, positive: str) -> ClassifierCalibrationRecord:
    """Compute the calibration of the test images, pooled and by fold, and the effect of scaling on it."""
    test = rows_of(table, "test")
    return ClassifierCalibrationRecord(
        n_bins=N_BINS,
        pooled=calibration_of(test, interval=clustered_share),
        folds=[
            CalibrationOfFold(fold=int(k), **_class_line(test[test.fold == k], positive)) for k in np.unique(test.fold)
        ],
        recalibration=[_recalibration(table, positive, method) for method in get_args(Method)],
    )


def calibration_of(rows: Rows, *, n_bins: int = N_BINS, interval: ShareInterval | None = None) -> PooledCalibration:
    """Compute the calibration of each class against the rest and of the decided class, for n >= 1 images.

    The Brier score is half the sum over the K classes, in [0, 1]; for two classes the binary score.
    """
    hit = np.eye(len(rows.classes))[rows.label]  # (n, K)
    classes = {}
    for k, name in enumerate(rows.classes):
        reference, prob = rows.label == k, rows.prob[:, k]
        line = calibration_line(reference, log_odds(rows.scores, k), rows.group)
        classes[name] = ClassCalibration(
            reliability=reliability(reference, prob, rows.group, n_bins=n_bins, interval=interval),
            **vars(line),
            brier=brier(reference, prob, rows.group, n_bins=n_bins),
        )
    return PooledCalibration(
        n_images=len(rows),
        n_groups=rows.n_groups,
        brier=point(float(((rows.prob - hit) ** 2).sum(axis=1).mean() / 2), rows.n_groups),
        top_label=top_label_reliability(rows.label, rows.prob, rows.group, n_bins=n_bins, interval=interval),
        classes=classes,
    )


def run_decision_curve(
    table: pd.DataFrame, *, positive: str, thresholds: ArrayLike = THRESHOLDS, prevalence: float | None = None
) -> DecisionCurve:
    """Compute the decision curve of all test images of a run, one class against the rest.

    The probability of each image comes from the model of its own fold.

    Raises:
        UsvitError: see ``rows_of``; ``positive`` is not a class.
        ValueError: see ``decision_curve``.
    """
    rows = rows_of(table, "test")
    k = rows.index(positive)
    return decision_curve(rows.label == k, rows.prob[:, k], rows.group, thresholds=thresholds, prevalence=prevalence)


def subgroup_section(
    table: pd.DataFrame,
    positive: str,
    columns: pd.DataFrame | None,
    by: Mapping[str, Sequence[float] | None] | None,
) -> list[Subgrouping]:
    """Compute figures with intervals in each subgroup, and the differences between subgroups with Holm's correction.

    Args:
        table: the predictions.
        positive: one of the classes.
        columns: more columns of the images, by dataset and image_id, such as the manifest.
        by: column -> limits that cut it, or None; a requested column that cannot be used is an error. None takes
            those of ``SUBGROUP_COLUMNS`` that exist and divide the images.

    Raises:
        UsvitError: as ``subgroups.subgroups``, for a requested column.
    """
    classes = classes_of(table)
    test = first_repeat(table[table["part"] == "test"])

    def measure(label: np.ndarray, prob: np.ndarray, group: np.ndarray) -> FigureValues:
        return figures_with_intervals(label, prob, group, classes=classes, positive=positive, ranked=False)

    def of(name: str, limits: Sequence[float] | None) -> Subgrouping:
        levels = subgroups(test, name, positive=positive, columns=columns, limits=limits, measure=measure)
        rows, level = rows_of(test, "test"), levels_of(test, name, columns=columns, limits=limits)
        known = level != NOT_RECORDED
        own = rows[known]
        k = rows.index(positive)
        differences = level_differences(own.label, own.prob, own.group, level[known], positive=k) if known.any() else []
        return Subgrouping(by=name, levels=levels, differences=differences, reason=None)

    if by is not None:
        return correct_after_holm([of(name, limits) for name, limits in by.items()])
    sections = []
    for name, limits in SUBGROUP_COLUMNS.items():
        there = columns if columns is not None and name in columns else test
        if name not in there or there[name].nunique() < 2:
            continue
        try:
            section = of(name, limits)
        except UsvitError as error:
            section = Subgrouping(by=name, levels=[], differences=[], reason=str(error))
        if len(section.levels) != 1:  # all test images may have one value although the manifest has several
            sections.append(section)
    return correct_after_holm(sections)


def patient_section(table: pd.DataFrame, positive: str, origin: PredictionOrigin = ONE_MODEL) -> Patients:
    """Compute the figures with one row per patient, for images with a patient id.

    A patient with images of several labels counts as positive if one image is; otherwise as the first class, in order,
    that one of the images has. ``mean`` and ``max`` hold pooled figures, ``headline`` the means over folds with an
    interval that is valid under cross-validation.

    Args:
        table: the predictions of all repeats. Rows of split val help to estimate the training share.
        positive: one of the classes.
        origin: what gave the predictions, for the text.
    """
    known = table[table["patient_id"].notna()]
    if not (known["part"] == "test").any():
        return Patients(n_patients=None, reason="no image has a patient id")
    classes = classes_of(table)
    order = [positive, *(name for name in classes if name != positive)]
    pooled: dict[str, FiguresRecord] = {}
    headlines: dict[str, Headline] = {}
    try:
        for how in ("mean", "max"):
            patients, _ = units_of(known, UnitSettings(unit="patient", pooling=how), positive)
            rows = rows_of(patients, "test")
            figures = figures_with_intervals(rows.label, rows.prob, rows.group, classes=classes, positive=positive)
            pooled[how] = FiguresRecord(**figures.values)
            headlines[how] = headline_section(patients, positive, figures, origin)
    except UsvitError as error:
        return Patients(n_patients=None, reason=str(error))
    test = first_repeat(table[table["part"] == "test"])
    with_id = test[test["patient_id"].notna()]
    mixed = with_id.groupby(["dataset", "patient_id"])["label"].nunique() > 1
    return Patients(
        n_patients=len(rows),
        n_images=len(with_id),
        n_images_without_id=len(test) - len(with_id),
        n_mixed=int(mixed.sum()),
        label_order=order,
        class_patients={name: int((rows.label == rows.index(name)).sum()) for name in classes},
        headline=PatientHeadline(**headlines),
        mean=pooled["mean"],
        max=pooled["max"],
    )


def warnings_of(table: pd.DataFrame, metrics: MetricsRecord) -> list[str]:
    """Return warnings for readers of the figures.

    Args:
        table: the predictions.
        metrics: the figures.
    """
    test, row = table[table["part"] == "test"], metrics.row
    rows = rows_of(table, "test")
    said = few_groups_sentences(rows.label, group_codes(rows.group, len(rows))[0], list(rows.classes))
    for name, count in metrics.class_groups.items():
        if not count:
            said.append(f"No test {row} is of class '{name}': its figures, and averages over classes, are undefined.")
    without = int(test["patient_id"].isna().sum())
    if without:
        what = (
            NO_PATIENT_ID.replace("image", row)
            if without == len(test)
            else f"{without} of {len(test)} {row}s have no patient id"
        )
        said.append(
            f"{what}: several {row}s of one person may be treated as independent, and intervals may be too narrow."
        )
    split = int((test.groupby("group_id")["fold"].nunique() > 1).sum())
    if split:
        said.append(
            f"{split} groups have test {row}s in several folds: the split leaks, and the figures are better than on "
            "new patients."
        )
    conflicts = test[test["group_id"].astype(str).str.startswith("copies:")].groupby("group_id")["label"].nunique() > 1
    if conflicts.any():
        n = int(conflicts.sum())
        said.append(
            f"{n} cluster{'s' * (n > 1)} of near-duplicates among the tested images carr{'y' if n > 1 else 'ies'} "
            "different labels (an audit also counts images that were left out): a label is wrong, or the images are "
            "not near-duplicates. The report names them; 'usvit data audit' shows them, and its keep-list leaves them "
            "out."
        )
    if metrics.unit and metrics.unit.reason:
        said.append(f"Left out: {metrics.unit.reason}.")
    mixed, level = (metrics.unit, row) if metrics.unit else (metrics.patients, "patient")
    if mixed.n_mixed:
        order = " before ".join(f"'{name}'" for name in mixed.label_order or [])
        said.append(f"{mixed.n_mixed} {level}s have images of several labels; the order at {level} level is {order}.")
    sources = {one.source for one in metrics.operating_points}
    if any(source.startswith("test images of the other folds") for source in sources) and len(metrics.folds) > 1:
        said.append(
            "There are no inner validation images: the thresholds of a fold were chosen on test images of the other "
            "folds, which other models scored."
        )
    return said


def _recalibration(table: pd.DataFrame, positive: str, method: Method) -> Recalibration:
    before = _quality(rows_of(table, "test"), positive)
    try:
        scaled = recalibrate(table, positive=positive, method=method)
    except LeakageError as error:
        return Recalibration(method=method, folds=[], before=before, after=None, reason=str(error))
    after = None if scaled.table is None else _quality(rows_of(scaled.table, "test"), positive)
    folds = [_scaling(fit) for fit in scaled.folds]
    return Recalibration(method=method, folds=folds, before=before, after=after, reason=scaled.reason)


def _scaling(fit: FoldFit) -> ScalingOfFold:
    scaling = fit.scaling
    return ScalingOfFold(
        fold=fit.fold,
        temperature=scaling.value if isinstance(scaling, Temperature) else None,
        slope=scaling.slope if isinstance(scaling, Platt) else None,
        intercept=scaling.intercept if isinstance(scaling, Platt) else None,
        reason=fit.reason,
        n_images=fit.n_images,
        n_groups=fit.n_groups,
        class_counts=fit.class_counts,
    )


def _quality(rows: Rows, positive: str) -> RecalibratedRecord:
    """Compute the quality of the probabilities: log loss, Brier score and calibration."""
    hit = np.eye(len(rows.classes))[rows.label]
    chosen = np.maximum(rows.prob[np.arange(len(rows)), rows.label], np.finfo(np.float64).eps)
    return RecalibratedRecord(
        log_loss=point(max(float(-np.log(chosen).mean()), 0.0), rows.n_groups),
        brier=point(float(((rows.prob - hit) ** 2).sum(axis=1).mean() / 2), rows.n_groups),
        **_class_line(rows, positive),
    )


def _class_line(rows: Rows, positive: str) -> dict[str, Estimate]:
    """Compute the calibration of the positive class: calibration error, slope and intercept."""
    k = rows.index(positive)
    reference = rows.label == k
    found = reliability(reference, rows.prob[:, k], rows.group)
    line = calibration_line(reference, log_odds(rows.scores, k), rows.group)
    return {"ece": found.ece, "ece_debiased": found.ece_debiased, **vars(line)}
