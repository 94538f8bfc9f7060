"""``usvit evaluate``: compute all metrics of a run or of any table of predictions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usvit.cli import labels as given
from usvit.cli import options as o
from usvit.cli.repeats import show_repeatability
from usvit.errors import UsvitError

if TYPE_CHECKING:
    from usvit.records import External, MetricsRecord, OutcomeRecord, WorstCase


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
    _print(record)
    if out is not None:
        print(f"\nreport: {out / 'report.html'}, also as report.md and report.xlsx; metrics: {out / 'metrics.json'}")
        if labels is not None:
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
