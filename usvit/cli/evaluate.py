"""``usvit evaluate``: compute all metrics of a run or of any table of predictions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.repeats import show_repeatability
from usvit.cli.settings import option_name, takes_options
from usvit.config.evaluation import (
    Columns,
    EvaluationSettings,
    ExternalTestSettings,
    LabelSettings,
    PredictionSettings,
)
from usvit.config.fields import given_fields, part
from usvit.config.sections import Section
from usvit.errors import UsvitError

if TYPE_CHECKING:
    from usvit.records import External, MetricsRecord, OutcomeRecord, WorstCase


class EvaluateOptions(ExternalTestSettings, LabelSettings, EvaluationSettings, Columns):
    """Options of the command; which of them apply depends on what is evaluated."""


@takes_options()
def evaluate(
    predictions: Annotated[
        Path,
        typer.Argument(
            help="A run directory; a CSV, Excel or Parquet table, also of another tool; or a folder that usvit score "
            "wrote.",
            metavar="PREDICTIONS",
        ),
    ],
    settings: EvaluateOptions,
    labels: Annotated[
        Path | None,
        typer.Option(help="Labels of a scored set: CSV, TSV, XLSX or Parquet, column --label.", metavar="FILE"),
    ] = None,
    repeatability: Annotated[
        bool,
        typer.Option(
            "--repeatability",
            help="Instead, measure how far the scores of repeats differ: near-duplicates of one frame, or --repeats.",
        ),
    ] = False,
    repeats: Annotated[
        str | None,
        typer.Option(
            help="Column with the same value for all repeats of one object, such as a lesion's id (--repeatability).",
            metavar="COL",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report (HTML, Markdown, Excel), metrics.json and the table as usvit read it, or for "
            "repeatability.json and its page.",
            metavar="DIR",
        ),
    ] = None,
    json_: o.Json = False,
) -> None:
    """Compute all metrics with intervals from a run, or from any table of predictions, also of another tool.

    The metrics are AUC, sensitivity, specificity and others with patient-clustered intervals, at thresholds that were
    chosen on other images, calibration, decision curve, subgroups and results by patient. --json prints all of them
    (docs/reference/metrics.schema.json). With --labels, the command evaluates a result of 'usvit score' as an external
    test: at the model's frozen threshold, and with the images that could not be scored or were seen in training. With
    --repeatability, it compares the scores of near-duplicates, or of images with equal values in --repeats.
    """
    if repeatability or repeats is not None:
        refused = {"--labels": labels} if labels else {}
        _refuse(settings, (Columns, PredictionSettings), "with --repeatability", refused)
        show_repeatability(
            predictions, repeats, part(settings, Columns), part(settings, PredictionSettings), out, as_json=json_
        )
        return
    if labels is not None:
        _refuse(settings, (LabelSettings, ExternalTestSettings), "for a scored set, whose columns are known")
        from usvit.scoring import LabelTable, evaluate_scores

        table = LabelTable(labels, **dict(part(settings, LabelSettings)))
        hidden = {"key": table.key, "input_root": table.input_root, "calibration": settings.calibration}
        record, _ = evaluate_scores(
            predictions,
            table,
            settings=part(settings, ExternalTestSettings),
            out=out,
            command=o.command_line(scores=predictions, labels=labels, out=out, **hidden),
        )
    else:
        _refuse(settings, (Columns, EvaluationSettings), "without --labels")
        from usvit import evaluation

        record = evaluation.evaluate(
            predictions,
            settings=part(settings, EvaluationSettings),
            columns=part(settings, Columns),
            out=out,
            command=o.command_line(),
        )
    if out is not None:
        from usvit import reports

        reports.report(out)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print(record)
    if out is not None:
        print(f"\nreport: {out / 'report.html'}, also as report.md and report.xlsx; metrics: {out / 'metrics.json'}")
        if record.external and any(
            n for what, n in record.external.counts.items() if what not in ("label_rows", "labels")
        ):
            print(f"rows without a match: {out / 'unmatched.csv'}")
    print("For research use, not a medical device.")


def _print(record: "MetricsRecord") -> None:
    from usvit.cli.printing import (
        print_abstention,
        print_at_prevalence,
        print_calibration,
        print_figures,
        print_operating_points,
        print_subgroups,
    )

    known = record.patients.n_patients if record.patients else None
    patients = "" if known is None else f", {known} known patients"
    counts = ", ".join(f"{name} {count}" for name, count in record.class_counts.items())
    print(f"{record.n_images} images in {record.n_groups} groups{patients}: {counts}")
    print_figures(record)
    if record.external:
        print("(accuracy, sensitivity and specificity: above by the most probable class, below at a threshold)")
        there = [one for one in record.operating_points if one.pooled is not None]
        print_operating_points(record.model_copy(update={"operating_points": there}))
        _print_external(record, record.external)
    else:
        print_operating_points(record)
    print_at_prevalence(record)
    print_calibration(record)
    print_abstention(record)
    print_subgroups(record)


def _print_external(record: "MetricsRecord", external: "External") -> None:
    """Print the parts of an external test: frozen thresholds, failures, calibrated probability."""
    from usvit.cli.printing import calibration_in_words, with_interval

    print(f"images seen in training: {external.seen.answer if external.seen else 'not recorded'}")
    print("an external test does not choose thresholds; 'usvit recalibrate' chooses them on other patients")
    frozen = [one for one in record.operating_points if one.rule.startswith("frozen")]
    print(f"frozen thresholds (of the calibrated probability) are from {frozen[0].source}")
    for point in frozen:
        if point.pooled is None:
            print(f"{point.rule}: none, {point.reason}")
        else:
            print(f"{point.rule}: PPV {with_interval(point.pooled.ppv)}, NPV {with_interval(point.pooled.npv)}")
    for one in external.abstained.decided_only:
        print(f"{one.rule}, of the images it decided: {_both(one.outcome)}")
    if external.conformal is not None:
        sets = external.conformal
        for of_class in sets.sets:
            covered, single = with_interval(of_class.coverage), with_interval(of_class.one_class)
            name = f"conformal sets, alpha {sets.alpha:g}, {sets.guarantee} of a patient: {of_class.reference}"
            print(f"{name}: covered {covered}, one class in the set of {single} of images")
    failures = external.failures
    if failures.share is None:
        print(f"could not be scored: unknown ({failures.reason})")
    else:
        print(f"could not be scored: {failures.n_failed}, a share of {with_interval(failures.share)}")
        for worst in failures.worst_case if failures.n_failed else []:
            print(f"{worst.rule}, if all of these were wrong: {_both(worst)}")
    if external.calibrated is not None:
        print(f"\ncalibrated probability of {record.positive_class}: {calibration_in_words(external.calibrated)}")


def _both(rates: "OutcomeRecord | WorstCase") -> str:
    from usvit.cli.printing import with_interval

    return f"sensitivity {with_interval(rates.sensitivity)}, specificity {with_interval(rates.specificity)}"


def _refuse(
    settings: EvaluateOptions, allowed: tuple[type[Section], ...], why: str, others: Mapping[str, object] | None = None
) -> None:
    """Refuse options that were given and belong to none of the sections."""
    known = {name for section in allowed for name in section.model_fields}
    for name in [*(others or {}), *(option_name(EvaluateOptions, name) for name in given_fields(settings) - known)]:
        raise UsvitError(f"{name} cannot be used {why}.")
