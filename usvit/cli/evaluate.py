"""``usvit evaluate``: compute all metrics of a run or of any table of predictions."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from usvit.cli import options as o
from usvit.cli.repeats import show_repeatability
from usvit.cli.settings import option_name, takes_options
from usvit.config.evaluation import (
    Columns,
    EvaluationSettings,
    ExternalTestSettings,
    LabelTableSettings,
    RepeatsSettings,
    ScoredUnit,
    Unit,
)
from usvit.config.fields import Option, given_fields, part
from usvit.config.keywords import built
from usvit.config.sections import Section
from usvit.errors import UsvitError

S = TypeVar("S", bound=Section)


class EvaluateOptions(ExternalTestSettings, LabelTableSettings, EvaluationSettings, Columns):
    """Options of the command; which of them apply depends on what is evaluated."""

    unit: Annotated[Literal[Unit, ScoredUnit] | None, Option(metavar="UNIT")] = None  # type: ignore[assignment]
    """Unit of analysis: image, lesion, breast, exam or patient; of a scored set, also file.
    Figures, thresholds and calibration are those of the unit. (default: that of the run, or image)"""


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
    --repeatability, it compares the scores of near-duplicates, or of images (with --unit, of units, such as the exams
    of a patient) with equal values in --repeats.
    """
    if repeatability or repeats is not None:
        refused = {"--labels": labels} if labels else {}
        _refuse(settings, (Columns, RepeatsSettings), "with --repeatability", refused)
        show_repeatability(
            predictions, repeats, part(settings, Columns), _of(settings, RepeatsSettings), out, as_json=json_
        )
        return
    if labels is not None:
        _refuse(settings, (LabelTableSettings, ExternalTestSettings), "for a scored set, whose columns are known")
        from usvit.scoring import LabelTable, evaluate_scores

        table = LabelTable(labels, **dict(part(settings, LabelTableSettings)))
        hidden = {"key": table.key, "input_root": table.input_root, "calibration": settings.calibration}
        record, _ = evaluate_scores(
            predictions,
            table,
            settings=_of(settings, ExternalTestSettings),
            out=out,
            command=o.command_line(scores=predictions, labels=labels, out=out, **hidden),
        )
    else:
        _refuse(settings, (Columns, EvaluationSettings), "without --labels")
        from usvit import evaluation

        record = evaluation.evaluate(
            predictions,
            settings=_of(settings, EvaluationSettings),
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
    from usvit.documents import terminal_text
    from usvit.reports import flow_of_folder, metrics_document

    print(terminal_text(metrics_document(record, flow_of_folder(predictions, record))))
    if out is not None:
        print(f"\nreport: {out / 'report.html'}, also as report.md and report.xlsx; metrics: {out / 'metrics.json'}")
        if record.external and any(
            n for what, n in record.external.counts.items() if what not in ("label_rows", "labels")
        ):
            print(f"rows without a match: {out / 'unmatched.csv'}")


def _of(settings: EvaluateOptions, section: type[S]) -> S:
    """Return the fields of a section, of which some take fewer values than the options."""
    given = given_fields(settings) & section.model_fields.keys()
    return built(
        section, {name: getattr(settings, name) for name in given}, option=partial(option_name, EvaluateOptions)
    )


def _refuse(
    settings: EvaluateOptions, allowed: tuple[type[Section], ...], why: str, others: Mapping[str, object] | None = None
) -> None:
    """Refuse options that were given and belong to none of the sections."""
    known = {name for section in allowed for name in section.model_fields}
    for name in [*(others or {}), *(option_name(EvaluateOptions, name) for name in given_fields(settings) - known)]:
        raise UsvitError(f"{name} cannot be used {why}.")
