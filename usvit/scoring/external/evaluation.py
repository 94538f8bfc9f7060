"""External test: the scores of a frozen model on new patients, compared with their labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import logit

from usvit.config.evaluation import ExternalTestSettings, LabelTable, ScoredUnit
from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError
from usvit.evaluation import (
    SUBGROUP_COLUMNS,
    PredictionOrigin,
    Predictions,
    decided_at,
    judged_sets,
    measure,
    refuse_occupied,
    rows_of,
    sets_of,
    write_evaluation,
)
from usvit.metrics.calibration_statistics import LOWEST_PROB, brier, calibration_line, reliability
from usvit.metrics.prevalence import prevalence_section
from usvit.metrics.proportions import ShareInterval, clustered_share, share
from usvit.metrics.threshold_choice import outcome
from usvit.records import (
    Abstained,
    AtPrevalence,
    ClassCalibration,
    ConformalRecord,
    DecidedOnly,
    Evaluation,
    External,
    Failures,
    MetricsRecord,
    OperatingPointRecord,
    OutcomeRecord,
    PointOfFold,
    RecalibrationFiguresRecord,
    UnitPointRecord,
    UnitRecord,
    WorstCase,
)
from usvit.scoring.calibration import LocalCalibration, read_calibration
from usvit.scoring.external.counting import predictions_of
from usvit.scoring.external.flow import flow_of_test
from usvit.scoring.external.labels import (
    COPY,
    FAILED,
    LEFT_OUT,
    NOT_SCORED,
    UNLABELLED,
    WITHOUT_ID,
    LabelledSet,
    join_labels,
)
from usvit.scoring.external.leakage import contamination_of_set, seen_check, without_seen
from usvit.scoring.external.patients import with_patients
from usvit.scoring.external.scored_set import ScoredSet, read_scored_set
from usvit.scoring.items import PRIVATE_COLUMNS

SEEN = "seen by the model, or a near-duplicate of a seen image, or in a group with such an image"
ENOUGH = 100
"""Number of patients of each class below which an external test counts as small.

Source: Vergouwe et al. (2005), J. Clinical Epidemiology 58:475 (100 events and 100 non-events); Collins et al. (2016),
Statistics in Medicine 35:214 (at least 100 events, better 200).
"""


@dataclass(frozen=True)
class _FrozenPoint:
    """A threshold that was fixed before any of these labels were known."""

    rule: str
    origin: str
    threshold: float | None
    reason: str | None


@takes_settings
def evaluate_scores(
    folder: Path,
    labels: LabelTable,
    settings: ExternalTestSettings,
    *,
    out: Path | None = None,
    command: str = "",
) -> tuple[MetricsRecord, Predictions]:
    """Evaluate a scored set against labels: all figures of ``usvit evaluate``, and those of an external test.

    Args:
        folder: folder that ``usvit score`` wrote.
        labels: the reference classes.
        settings: see ``ExternalTestSettings``.
        out: folder for metrics.json, predictions.csv (pseudonyms only), unmatched.csv and run.json, from which
            ``usvit.report`` makes the page.
        command: what the user called, for run.json.

    Returns:
        The content of metrics.json with the key ``external``, and the table from which it was computed.

    Raises:
        UsvitError: see ``read_scored_set``, ``join_labels`` and ``read_calibration``; or a column of ``by`` is unknown
            or private, or ``out`` holds other files.
        LeakageError: the model or the calibration has seen an image of the test, or a near-duplicate of one; or, by a
            published list, its data set.
    """
    if out is not None:
        refuse_occupied(out)
    scored = with_patients(read_scored_set(folder), labels)
    _refuse_private(settings.by)
    labelled = join_labels(scored, labels, extra=[*dict.fromkeys([*SUBGROUP_COLUMNS, *settings.by])])
    refit = None if settings.calibration is None else read_calibration(settings.calibration)
    if refit is not None:
        refit.refuse_other(scored.model_sha256, scored.classes, scored.positive)
    contamination, doubt = contamination_of_set(
        scored, labelled.rows, settings.dataset, allow=settings.allow_contaminated
    )
    rows, dropped = without_seen(scored, labelled, refit, drop=settings.drop_seen)
    if refit is not None:
        prob = refit.scaled(rows[[f"prob_{name}" for name in scored.classes]].to_numpy(np.float64))
        rows[f"calibrated_{scored.positive}"] = prob[:, scored.classes.index(scored.positive)]
    by = [*labelled.extra, *settings.by]
    table, said, unit = predictions_of(rows, scored, settings.unit, settings.pooling, by, refit)
    found = Predictions(
        folder.absolute().name,
        table,
        list(scored.classes),
        scored.positive,
        warnings=[*labelled.said, *said, *([doubt] if doubt else [])],
        contamination=contamination,
        origin=PredictionOrigin(external=True),
    )
    divided = {"unusual": None} if table["unusual"].nunique() > 1 else {}
    metrics = measure(found, {**divided, **settings.by} or None)
    points = _frozen_points(scored, refit, unit)
    decided = None
    abstained = (rows["decision"] == "") & (scored.threshold is not None)
    if abstained.any() and not abstained.all():
        decided = predictions_of(rows[~abstained], scored, settings.unit, settings.pooling, [], refit)[0]
    external = External(
        joined_by=labelled.by,
        model_sha256=scored.model_sha256,
        recalibrated=None
        if refit is None
        else RecalibrationFiguresRecord(sha256=refit.sha256, n_images=refit.n_images, n_groups=refit.n_groups),
        counts=_counts(labelled, dropped),
        flow=flow_of_test(scored, labelled, dropped),
        seen=seen_check(scored, rows, refit),
        failures=_failures(labelled, rows, table, points, scored.positive, settings.unit),
        abstained=_abstained(int(abstained.sum()), decided, points, scored.positive),
        calibrated=_calibrated(table, scored.positive),
        conformal=None if refit is None else _conformal(table, scored, refit),
    )
    frozen = [_operating_point(one, table, scored.positive) for one in points]
    metrics = metrics.model_copy(
        update={
            "unit": unit,
            "operating_points": [*frozen, *metrics.operating_points],
            "at_prevalence": None
            if settings.prevalence is None
            else _at_prevalence(table, points, scored, settings.prevalence),
            "external": external,
            "warnings": metrics.warnings + _warnings(metrics.class_groups, external),
        }
    )
    if out is not None:
        files = {"labels": labels.path, "calibration": settings.calibration, "scores": scored.file}
        evaluated = Evaluation(
            of="external test",
            source=found.name,
            networks=list(scored.networks) or None,
            scored=scored.finished or None,
            warnings=found.warnings,
        )
        given = {name: path for name, path in files.items() if path is not None}
        unmatched = pd.concat([labelled.listed, _dropped(dropped)], ignore_index=True)
        write_evaluation(out, metrics, table, evaluated, given, command=command, unmatched=unmatched)
    return metrics, found


def _refuse_private(by: Iterable[str]) -> None:
    for name in by:
        if name in PRIVATE_COLUMNS and name != "device":
            raise UsvitError(f"--by {name}: a column of original ids cannot define subgroups.")


def _frozen_points(scored: ScoredSet, refit: LocalCalibration | None, unit: UnitRecord | None) -> list[_FrozenPoint]:
    """Return the thresholds of the unit, if there are any that were chosen for it; otherwise those of images."""
    if refit is not None:
        thresholds, rows = refit.thresholds, f"{refit.n_images} images"
        if (fitted := refit.of_units) is not None and _same(fitted.units, unit):
            thresholds, rows = tuple(fitted.thresholds), f"{fitted.units.n_units} {fitted.units.unit}s"
        origin = f"local labels: {rows} of {refit.n_groups} groups (usvit recalibrate)"
        return [_FrozenPoint(f"frozen: {one.rule}", origin, one.threshold, one.reason) for one in thresholds]
    threshold, origin = scored.threshold, scored.threshold_origin
    if (own := scored.unit) is not None and _same(own, unit):
        threshold, origin = own.threshold, own.origin
    if threshold is None:
        why = origin.removeprefix("none:").strip()
        return [_FrozenPoint("frozen: none", "the model", None, why or "the model was scored without a threshold")]
    return [_FrozenPoint(f"frozen: threshold {threshold:.4g}", origin or "the model", threshold, None)]


def _same(one: UnitRecord | UnitPointRecord, other: UnitRecord | None) -> bool:
    return other is not None and (one.unit, one.pooling) == (other.unit, other.pooling)


def _operating_point(point: _FrozenPoint, table: pd.DataFrame, positive: str) -> OperatingPointRecord:
    fold = PointOfFold(
        fold=0,
        threshold=point.threshold,
        reason=point.reason,
        chosen_on=None,
        on_test=_outcome(point, table, positive),
        target_reached=None,
    )
    return OperatingPointRecord(
        rule=point.rule,
        source=point.origin,
        folds=[fold],
        pooled=_outcome(point, table, positive, clustered_share),
        reason=point.reason,
        n_below_target=None,
        procedure=None,
    )


def _at_prevalence(
    table: pd.DataFrame, points: list[_FrozenPoint], scored: ScoredSet, prevalence: float
) -> AtPrevalence:
    """Return the predictive values of the most probable class and of the frozen thresholds."""
    rows = rows_of(table, "test", scored.classes)
    decisions = decided_at(rows, scored.positive, ()).called
    for one in points:
        if one.threshold is not None:
            decisions[one.rule] = _called(one, table, scored.positive)[1]
    return prevalence_section(rows.label == rows.index(scored.positive), decisions, rows.group, prevalence)


def _called(point: _FrozenPoint, table: pd.DataFrame, positive: str) -> tuple[np.ndarray, np.ndarray]:
    reference = (table["label"] == positive).to_numpy()
    return reference, (table["calibrated"] >= point.threshold).to_numpy()


def _outcome(
    point: _FrozenPoint, table: pd.DataFrame, positive: str, interval: ShareInterval | None = None
) -> OutcomeRecord | None:
    if point.threshold is None:
        return None
    reference, called = _called(point, table, positive)
    return outcome(reference, called, table["group_id"].to_numpy(object), interval=interval)


def _counts(labelled: LabelledSet, dropped: pd.DataFrame) -> dict[str, int]:
    return {
        "label_rows": labelled.n_label_rows,
        "labels": labelled.n_labels,
        "labels_without_id": labelled.count(WITHOUT_ID),
        "labels_left_out": labelled.count(LEFT_OUT),
        "labelled_failed": labelled.count(FAILED),
        "labelled_not_scored": labelled.count(NOT_SCORED),
        "scored_not_labelled": labelled.count(UNLABELLED),
        "copies_left_out": labelled.count(COPY),
        "seen_images_left_out": len(dropped),
    }


def _failures(
    labelled: LabelledSet,
    rows: pd.DataFrame,
    table: pd.DataFrame,
    points: Sequence[_FrozenPoint],
    positive: str,
    unit: ScoredUnit,
) -> Failures:
    """Count what could not be scored, and compute the figures as if each such image were classified wrongly."""
    if labelled.by != "item_id" or unit not in ("image", "file"):
        reason = (
            "a file that cannot be read is known by its item_id alone: join by item_id or path, and count images or "
            "files, to know what failed"
        )
        return Failures(n_failed=None, share=None, codes={}, worst_case=[], reason=reason)
    failed = labelled.failed
    if unit == "file":  # a file with a scored frame has a score
        failed = failed[~failed["item_id"].isin(rows["item_id"])].drop_duplicates("item_id")
    group = rows.drop_duplicates("item_id").set_index("item_id")["group_id"]
    lost = failed["item_id"].map(group).fillna("file:" + failed["item_id"]).to_numpy(object)
    groups = np.concatenate([table["group_id"].to_numpy(object), lost])
    missed = np.concatenate([np.zeros(len(table), bool), np.ones(len(failed), bool)])
    worst = []
    for one in points:
        if one.threshold is None:
            continue
        reference, called = _called(one, table, positive)
        own = (failed["label"] == positive).to_numpy()
        reference, called = np.concatenate([reference, own]), np.concatenate([called, ~own])
        worst.append(
            WorstCase(
                rule=one.rule,
                sensitivity=share(called[reference], groups[reference], of="positives", interval=clustered_share),
                specificity=share(~called[~reference], groups[~reference], of="negatives", interval=clustered_share),
            )
        )
    return Failures(
        n_failed=len(failed),
        share=share(missed, groups, of="images", interval=clustered_share),
        codes={str(code): int(n) for code, n in failed["code"].value_counts().sort_index().items()},
        worst_case=worst,
        reason=None,
    )


def _abstained(
    n_abstained: int, decided: pd.DataFrame | None, points: Sequence[_FrozenPoint], positive: str
) -> Abstained:
    """Count the images that the model abstained from, and compute the figures of the others."""
    known = []
    for one in points:
        found = None if decided is None else _outcome(one, decided, positive, clustered_share)
        if found is not None:
            known.append(DecidedOnly(rule=one.rule, outcome=found))
    return Abstained(n_images=n_abstained, decided_only=known)


def _calibrated(table: pd.DataFrame, positive: str) -> ClassCalibration:
    """Return the calibration of the calibrated probability of the positive class against the rest."""
    reference, group = (table["label"] == positive).to_numpy(), table["group_id"].to_numpy(object)
    prob = table["calibrated"].to_numpy(np.float64)
    odds = logit(np.clip(prob, LOWEST_PROB, 1 - LOWEST_PROB))
    return ClassCalibration(
        reliability=reliability(reference, prob, group, interval=clustered_share),
        **vars(calibration_line(reference, odds, group)),
        brier=brier(reference, prob, group),
    )


def _conformal(table: pd.DataFrame, scored: ScoredSet, fit: LocalCalibration) -> ConformalRecord | None:
    """Test the conformal sets of a calibration on these images, none of whose patients it was fitted on."""
    sets = fit.conformal
    if sets is None or sets.positive.bound is None or sets.rest.bound is None:
        return None
    rows = rows_of(table, "test", scored.classes)
    found = sets_of(table["calibrated"].to_numpy(np.float64), sets.positive.bound, sets.rest.bound)
    return ConformalRecord(
        alpha=sets.alpha,
        guarantee=sets.guarantee,
        source=f"local labels: {fit.n_images} images of {fit.n_groups} groups (usvit recalibrate)",
        folds=[],
        sets=judged_sets(found, rows, scored.positive, sets.guarantee),
        reason=None,
    )


def _dropped(rows: pd.DataFrame) -> pd.DataFrame:
    ids = rows["item_id"].drop_duplicates().tolist()
    return pd.DataFrame({"what": SEEN, "id": ids, "label_row": None, "code": ""}).astype({"label_row": "Int64"})


def _warnings(class_groups: Mapping[str, int], external: External) -> list[str]:
    said = []
    few = [f"'{name}' {count}" for name, count in class_groups.items() if 0 < count < ENOUGH]
    if few:
        said.append(
            f"Groups of class {', '.join(few)}: below {ENOUGH} of each an external test is small (Vergouwe 2005, "
            "Collins 2016). Read the intervals, not the numbers."
        )
    if external.seen.found != "none":
        said.append(f"Training images in this test set: {external.seen.answer}")
    counts = external.counts
    if counts["labelled_failed"] or external.failures.n_failed:
        said.append(f"{counts['labelled_failed']} labelled files could not be scored: see the worst case.")
    if counts["labelled_not_scored"]:
        said.append(f"{counts['labelled_not_scored']} of {counts['labels']} labels find no scored image.")
    if counts["scored_not_labelled"]:
        said.append(f"{counts['scored_not_labelled']} scored files have no label.")
    if counts["seen_images_left_out"]:
        said.append(
            f"{counts['seen_images_left_out']} images were left out: their group was used for the model or its "
            "calibration."
        )
    if external.abstained.n_images:
        said.append(
            f"The model abstained from {external.abstained.n_images} images; the figures count them, at the "
            "threshold, unless they say otherwise."
        )
    return said
