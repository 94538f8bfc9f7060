"""The sections of metrics.json beside its figures: thresholds, calibration, subgroups, patients; and its warnings.

Each is one function from a predictions table to what JSON can hold. A section that cannot be made says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

import numpy as np
import pandas as pd

from usvit.errors import LeakageError, UsvitError
from usvit.metrics.calibration import N_BINS, calibration_line, calibration_of, reliability
from usvit.metrics.headline import figures_with_intervals
from usvit.metrics.intervals import FEW_GROUPS
from usvit.metrics.patients import by_patient
from usvit.metrics.predictions import classes_of
from usvit.metrics.proportions import clustered_share, point
from usvit.metrics.recalibration import Method, Platt, Temperature, recalibrate
from usvit.metrics.rows import Rows, log_odds, rows_of
from usvit.metrics.subgroups import subgroups
from usvit.metrics.threshold_procedure import draw_procedure, procedure_of
from usvit.metrics.thresholds import RULES, FoldPoint, OperatingPoint, choosing_rows, operating_points, outcome

SUBGROUP_COLUMNS: dict[str, list[float] | None] = {
    "dataset": None,
    "device": None,
    "birads": None,
    "lesion_size_mm": [10.0, 20.0],
}
"""Looked at by default, where they are there; sizes are cut at the limits of stages T1b and T1c (AJCC, 8th edition)."""
SUBGROUP_FIGURES = ("accuracy", "balanced_accuracy", "auc_macro_ovr", "auc", "sensitivity", "specificity")
FEW_OF_A_CLASS = FEW_GROUPS // 5
NO_PATIENT_ID = "No image has a patient id"


def operating_section(table: pd.DataFrame, positive: str) -> list[dict[str, Any]]:
    """``thresholds.RULES`` by fold, as numbers; pooled; and as a procedure.

    ``procedure`` holds the pooled figures with intervals that include the choice of the thresholds. It is None for a
    fixed threshold and where nothing is pooled. The intervals of ``pooled`` are conditional on these thresholds.

    Where a split does not keep groups apart no image is left that could choose a threshold: the reason stands in
    place of the thresholds.
    """
    test = rows_of(table, "test")
    try:
        points = operating_points(table, positive=positive)
    except LeakageError as error:
        folds = tuple(FoldPoint(int(k), None, str(error), None, None, None) for k in np.unique(test.fold))
        fixed = [rule for rule in RULES if rule.kind == "fixed"]
        points = [
            OperatingPoint(rule.name, "none", folds, None, str(error), None) for rule in RULES if rule.kind != "fixed"
        ]
        points += operating_points(table, positive=positive, rules=fixed)
    k = test.index(positive)
    chosen = [rule for rule, one in zip(RULES, points, strict=True) if rule.kind != "fixed" and one.pooled is not None]
    drawn = draw_procedure(test, choosing_rows(table)[1], k, chosen) if chosen else np.empty((0, 0, 4))
    found = []
    for rule, one in zip(RULES, points, strict=True):
        entry: dict[str, Any] = {**asdict(one), "procedure": None}
        if one.pooled is not None:
            threshold = {fold.fold: fold.threshold for fold in one.folds}
            called = test.prob[:, k] >= np.array([threshold[int(fold)] for fold in test.fold])
            reference = test.label == k
            entry["pooled"] = asdict(outcome(reference, called, test.group, interval=clustered_share))
            if rule in chosen:
                whole = procedure_of(one.pooled, drawn[:, chosen.index(rule)], called, reference, test.group)
                entry["procedure"] = asdict(whole)
        found.append(entry)
    return found


def calibration_section(table: pd.DataFrame, positive: str) -> dict[str, Any]:
    """Calibration of the test images, pooled and by fold, and what scaling on inner validation images does to it."""
    test = rows_of(table, "test")
    return {
        "n_bins": N_BINS,
        "pooled": calibration_of(test, interval=clustered_share),
        "folds": [{"fold": int(k), **_line(test[test.fold == k], positive)} for k in np.unique(test.fold)],
        "recalibration": [_recalibration(table, positive, method) for method in get_args(Method)],
    }


def subgroup_section(
    table: pd.DataFrame,
    positive: str,
    columns: pd.DataFrame | None,
    by: Mapping[str, Sequence[float] | None] | None,
) -> list[dict[str, Any]]:
    """Figures with intervals in each subgroup.

    Args:
        table: the predictions.
        positive: one of the classes.
        columns: more columns of the images, by dataset and image_id, such as the manifest.
        by: column -> limits that cut it, or None; these are asked for by name, so that one that cannot be
            used is an error. None takes those of ``SUBGROUP_COLUMNS`` that are there and divide the images.

    Raises:
        UsvitError: as ``subgroups.subgroups``, of a column that was asked for.
    """
    classes = classes_of(table)
    test = table[table["part"] == "test"]

    def measure(label: np.ndarray, prob: np.ndarray, group: np.ndarray) -> dict[str, Any]:
        found = figures_with_intervals(label, prob, group, classes=classes, positive=positive, ranked=False)
        return {name: found[name] for name in SUBGROUP_FIGURES}

    def of(name: str, limits: Sequence[float] | None) -> dict[str, Any]:
        levels = subgroups(test, name, positive=positive, columns=columns, limits=limits, measure=measure)
        return {"by": name, "levels": [asdict(level) for level in levels], "reason": None}

    if by is not None:
        return [of(name, limits) for name, limits in by.items()]
    sections = []
    for name, limits in SUBGROUP_COLUMNS.items():
        there = columns if columns is not None and name in columns else test
        if name not in there or there[name].nunique() < 2:
            continue
        try:
            section = of(name, limits)
        except UsvitError as error:
            section = {"by": name, "levels": [], "reason": str(error)}
        if len(section["levels"]) != 1:  # all of the test images may share a value that the manifest has others of
            sections.append(section)
    return sections


def patient_section(table: pd.DataFrame, positive: str) -> dict[str, Any]:
    """The figures with one row a patient, for images with a patient id.

    A patient with images of several labels counts as the positive class if one of them is; else as the first of
    the classes, in order, that one of them is.
    """
    test = table[table["part"] == "test"]
    known = test[test["patient_id"].notna()]
    if known.empty:
        return {"n_patients": None, "reason": "no image has a patient id"}
    classes = classes_of(table)
    order = [positive, *(name for name in classes if name != positive)]
    rules: dict[str, Any] = {}
    try:
        for how in ("mean", "max"):
            patients = by_patient(known, how=how, positive=positive, unit="patient_id", precedence=order)
            rows = rows_of(patients, "test")
            rules[how] = figures_with_intervals(rows.label, rows.prob, rows.group, classes=classes, positive=positive)
    except UsvitError as error:
        return {"n_patients": None, "reason": str(error)}
    mixed = known.groupby(["dataset", "patient_id"])["label"].nunique() > 1
    counts = patients["label"].value_counts()
    return {
        "n_patients": len(patients),
        "n_images": len(known),
        "n_images_without_id": len(test) - len(known),
        "n_mixed": int(mixed.sum()),
        "label_order": order,
        "class_patients": {name: int(counts.get(name, 0)) for name in classes},
        **rules,
    }


def warnings_of(table: pd.DataFrame, summary: dict[str, Any]) -> list[str]:
    """Sentences that a reader of the figures must see.

    Args:
        table: the predictions.
        summary: all sections of metrics.json.
    """
    test = table[table["part"] == "test"]
    n_groups, said = summary["n_groups"], []
    if n_groups < FEW_GROUPS:
        said.append(
            f"Intervals come from {n_groups} group{'s' * (n_groups != 1)} only; below {FEW_GROUPS} they hold the truth "
            "less often than they say."
        )
    for name, count in summary["class_groups"].items():
        if not count:
            said.append(f"No test image is of class '{name}': its figures, and averages over classes, are undefined.")
        elif count < FEW_OF_A_CLASS:
            said.append(f"Class '{name}' has test images of {count} group{'s' * (count != 1)} only.")
    without = int(test["patient_id"].isna().sum())
    if without:
        what = (
            "No image has a patient id"
            if without == len(test)
            else f"{without} of {len(test)} images have no patient id"
        )
        said.append(
            f"{what}: several images of one person may pass for independent ones, and intervals may then be too narrow."
        )
    split = int((test.groupby("group_id")["fold"].nunique() > 1).sum())
    if split:
        said.append(
            f"{split} groups have test images in several folds: the split leaks, the figures are better than on new "
            "patients."
        )
    conflicts = test[test["group_id"].astype(str).str.startswith("copies:")].groupby("group_id")["label"].nunique() > 1
    if conflicts.any():
        said.append(f"{int(conflicts.sum())} clusters of copies of one frame carry different labels.")
    mixed = summary["patients"].get("n_mixed", 0)
    if mixed:
        order = " before ".join(f"'{name}'" for name in summary["patients"]["label_order"])
        said.append(f"{mixed} patients have images of several labels; at patient level {order}.")
    sources = {one["source"] for one in summary["operating_points"]}
    if any(source.startswith("test images of the other folds") for source in sources) and len(summary["folds"]) > 1:
        said.append(
            "There are no inner validation images: a fold's thresholds were chosen on the other folds' test images, "
            "scored by other models."
        )
    return said


def _recalibration(table: pd.DataFrame, positive: str, method: Method) -> dict[str, Any]:
    test = rows_of(table, "test")
    entry: dict[str, Any] = {"method": method, "folds": [], "before": _quality(test, positive), "after": None}
    try:
        scaled = recalibrate(table, positive=positive, method=method)
    except LeakageError as error:
        return {**entry, "reason": str(error)}
    for fit in scaled.folds:
        scaling = fit.scaling
        entry["folds"].append(
            {
                "fold": fit.fold,
                "temperature": scaling.value if isinstance(scaling, Temperature) else None,
                "slope": scaling.slope if isinstance(scaling, Platt) else None,
                "intercept": scaling.intercept if isinstance(scaling, Platt) else None,
                "reason": fit.reason,
                "n_images": fit.n_images,
                "n_groups": fit.n_groups,
                "class_counts": fit.class_counts,
            }
        )
    if scaled.table is not None:
        entry["after"] = _quality(rows_of(scaled.table, "test"), positive)
    return {**entry, "reason": scaled.reason}


def _quality(rows: Rows, positive: str) -> dict[str, Any]:
    """How good the probabilities are; what scaling can change of it."""
    hit = np.eye(len(rows.classes))[rows.label]
    chosen = np.maximum(rows.prob[np.arange(len(rows)), rows.label], np.finfo(np.float64).eps)
    return {
        "log_loss": point(max(float(-np.log(chosen).mean()), 0.0), rows.n_groups),
        "brier": point(float(((rows.prob - hit) ** 2).sum(axis=1).mean() / 2), rows.n_groups),
        **_line(rows, positive),
    }


def _line(rows: Rows, positive: str) -> dict[str, Any]:
    """How the positive class's probabilities are calibrated, in numbers alone."""
    k = rows.index(positive)
    reference = rows.label == k
    found = reliability(reference, rows.prob[:, k], rows.group)
    return {
        "ece": found.ece,
        "ece_debiased": found.ece_debiased,
        **asdict(calibration_line(reference, log_odds(rows.scores, k), rows.group)),
    }
