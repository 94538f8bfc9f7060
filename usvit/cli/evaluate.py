"""``usvit evaluate``: compute all metrics of a run or of any table of predictions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from usvit.cli import labels as given
from usvit.cli import options as o
from usvit.cli.repeats import show_repeatability
from usvit.errors import UsvitError


def evaluate(
    predictions: Annotated[
        Path,
        typer.Argument(
            help="A run directory; a CSV, Excel or Parquet table, also of another tool; or a folder that usvit score "
            "wrote.",
            metavar="PREDICTIONS",
        ),
    ],
    label: o.Label = None,
    prob: o.Prob = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Column of groups of dependent images. (default: group_id, otherwise the patient)", metavar="COL"
        ),
    ] = None,
    patient: o.Patient = None,
    fold: o.Fold = None,
    image: o.Image = None,
    positive: o.Positive = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of subgroups; COL=10,20 cuts numbers at these limits. Can be repeated.", metavar="COL[=10,20]"
        ),
    ] = None,
    prevalence: Annotated[
        float | None,
        typer.Option(help="Also compute PPV and NPV at this prevalence, such as 0.006.", metavar="P"),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="Table with more columns of the images, such as device or birads. (default: the run's)", metavar="FILE"
        ),
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option(
            "--metadata",
            "--passport",
            help="model.json of the network, to refuse images that it was trained on (needs --manifest).",
            metavar="FILE",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Labels of a scored set: CSV, TSV, XLSX or Parquet, column --label.", metavar="FILE"),
    ] = None,
    map_: given.Map = None,
    join: given.Join = None,
    key: given.Key = None,
    input_root: given.InputRoot = None,
    drop_seen: given.DropSeen = False,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Public data set of a scored set, if the labels do not name it in a column 'dataset'.", metavar="D[+D]"
        ),
    ] = None,
    allow_contaminated: o.AllowContaminated = False,
    unit: Annotated[
        str | None, typer.Option(help="Unit of a scored set: frame, item, study or patient. (default: frame)")
    ] = None,
    roll_up: Annotated[
        str | None, typer.Option(help="Combine the frames of a --unit by mean or max. (default: mean)")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Evaluate a scored set with the file of 'usvit recalibrate', which was fitted on other patients.",
            metavar="FILE",
        ),
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
    limits = _limits(by or [])
    own: dict[str, object] = {"--prob": prob, "--group": group, "--fold": fold, "--image": image}
    own |= {"--positive": positive, "--manifest": manifest, "--metadata": metadata}
    scored: dict[str, object] = {
        "--map": map_,
        "--join": join,
        "--key": key,
        "--input-root": input_root,
        "--drop-seen": drop_seen,
        "--dataset": dataset,
    }
    scored |= {"--unit": unit, "--roll-up": roll_up, "--calibration": calibration}
    columns: dict[str, Any] = {"label": label, "prob": tuple(prob or ()), "group": group, "patient": patient}
    columns |= {"fold": fold, "image": image}
    if repeatability or repeats is not None:
        _refuse({"--labels": labels, "--by": by, "--prevalence": prevalence, **scored}, "with --repeatability")
        opened: dict[str, Any] = {"positive": positive, "manifest": manifest, "metadata": metadata}
        opened |= {"allow_contaminated": allow_contaminated}
        show_repeatability(predictions, repeats, columns, opened, out, json_)
        return
    if labels is not None:
        _refuse(own, "for a scored set, whose columns are known")
        from usvit.scoring import evaluate_scores

        table = given.label_table(labels, label, patient, map_, join, key, input_root)
        record, _ = evaluate_scores(
            predictions,
            table,
            by=limits,
            unit=unit or "frame",  # type: ignore[arg-type]
            roll_up=roll_up or "mean",  # type: ignore[arg-type]
            drop_seen=drop_seen,
            calibration=calibration,
            prevalence=prevalence,
            dataset=dataset,
            allow_contaminated=allow_contaminated,
            out=out,
            command=o.command_line(
                scores=predictions, labels=labels, key=key, input_root=input_root, calibration=calibration, out=out
            ),
        )
    else:
        _refuse(scored, "without --labels")
        from usvit import evaluation

        record = evaluation.evaluate(
            predictions,
            columns=evaluation.Columns(**columns),
            positive=positive,
            manifest=manifest,
            metadata=metadata,
            by=limits,
            prevalence=prevalence,
            allow_contaminated=allow_contaminated,
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
    from usvit.reports import metrics_document

    print(terminal_text(metrics_document(record)))
    if out is not None:
        print(f"\nreport: {out / 'report.html'}, also as report.md and report.xlsx; metrics: {out / 'metrics.json'}")
        if labels is not None:
            print(f"rows without a match: {out / 'unmatched.csv'}")


def _refuse(options: Mapping[str, object], why: str) -> None:
    for name, value in options.items():
        if value not in (None, False):
            raise UsvitError(f"{name} cannot be used {why}.")


def _limits(given: list[str]) -> dict[str, list[float] | None]:
    """Parse ``["device", "size=10,20"]`` as ``{"device": None, "size": [10, 20]}``."""
    found: dict[str, list[float] | None] = {}
    for one in given:
        name, equals, text = one.partition("=")
        try:
            found[name] = [float(number) for number in text.split(",")] if equals else None
        except ValueError as error:
            raise UsvitError(f"--by {one}: expected COLUMN, or COLUMN=10,20 with ascending numbers.") from error
    return found
