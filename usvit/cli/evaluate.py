"""``usvit evaluate``: every figure from any table of predictions."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.errors import UsvitError


def evaluate(
    predictions: Annotated[
        Path,
        typer.Argument(help="A run directory, or a CSV or Parquet table, another tool's too.", metavar="PREDICTIONS"),
    ],
    label: Annotated[
        str | None, typer.Option(help="Column of the reference class. (default: label)", metavar="COL")
    ] = None,
    prob: Annotated[
        list[str] | None,
        typer.Option(
            help="CLASS=COL for each class; or one COL for the --positive of two. (default: prob_<class>)",
            metavar="[CLASS=]COL",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Column of what makes images dependent. (default: group_id, else the patient)", metavar="COL"
        ),
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="Column of the patient. (default: patient_id)", metavar="COL")
    ] = None,
    fold: Annotated[
        str | None, typer.Option(help="Column of the fold. (default: fold; else one set)", metavar="COL")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Column of the image's name. (default: image_id)", metavar="COL")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="The positive class. (default: the run's, or malignant)", metavar="CLASS")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Column that makes subgroups, cut at limits where it is measured.", metavar="COL[=10,20]"),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(help="More columns of the images (device, birads). (default: the run's)", metavar="FILE"),
    ] = None,
    passport: Annotated[
        Path | None,
        typer.Option(help="model.json of the network: refuses images it has seen (needs --manifest).", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for metrics.json and the table as understood.", metavar="DIR")
    ] = None,
    json_: o.Json = False,
) -> None:
    """Every figure with its interval from a run or any table of predictions: another tool's, too.

    AUCs, sensitivity and the rest with patient-clustered intervals, nested thresholds, calibration, decision curve,
    subgroups, patient level. --json prints all of it (docs/reference/metrics.schema.json).
    """
    limits = _limits(by or [])
    from usvit.cli.show import print_calibration, print_figures, print_operating_points, print_subgroups
    from usvit.metrics.evaluate import evaluate as evaluate_predictions
    from usvit.metrics.tables import Columns

    columns = Columns(label=label, prob=tuple(prob or ()), group=group, patient=patient, fold=fold, image=image)
    metrics, _ = evaluate_predictions(
        predictions, columns=columns, positive=positive, manifest=manifest, passport=passport, by=limits, out=out
    )
    if json_:
        print(json.dumps(metrics, indent=2, ensure_ascii=False, allow_nan=False))
        return
    known = metrics["patients"]["n_patients"]
    patients = "" if known is None else f", {known} known patients"
    counts = ", ".join(f"{name} {count}" for name, count in metrics["class_counts"].items())
    print(f"{metrics['n_images']} images in {metrics['n_groups']} groups{patients}: {counts}")
    print_figures(metrics)
    print_operating_points(metrics)
    print_calibration(metrics)
    print_subgroups(metrics)
    if out is not None:
        print(f"\nmetrics: {out / 'metrics.json'}")
    print("For research use, not a medical device.")


def _limits(given: list[str]) -> dict[str, list[float] | None]:
    """``["device", "size=10,20"]`` as ``{"device": None, "size": [10, 20]}``."""
    found: dict[str, list[float] | None] = {}
    for one in given:
        name, equals, text = one.partition("=")
        try:
            found[name] = [float(number) for number in text.split(",")] if equals else None
        except ValueError as error:
            raise UsvitError(f"--by {one}: expected COLUMN, or COLUMN=10,20 with ascending numbers.") from error
    return found
