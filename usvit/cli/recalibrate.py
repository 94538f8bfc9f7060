"""``usvit recalibrate``: fit a temperature, thresholds and conformal sets on local labels."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.evaluation import LabelTableSettings, ScoredUnitSettings
from usvit.config.fields import part

if TYPE_CHECKING:
    from usvit.records import CalibrationRecord, ConformalFit, FittedThreshold


class RecalibrateOptions(ScoredUnitSettings, LabelTableSettings):
    """Options of the command: the labels, and the unit of further thresholds."""


@takes_options()
def recalibrate(
    scores: Annotated[Path, typer.Argument(help="Folder that usvit score wrote.", metavar="SCORES")],
    labels: Annotated[
        Path, typer.Option(help="Labels of its images: CSV, TSV, XLSX or Parquet, column --label.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option(help="JSON file to write, to pass as --calibration.", metavar="FILE")],
    settings: RecalibrateOptions,
    drop_seen: Annotated[
        bool, typer.Option("--drop-seen", help="Omit patients with an image that was seen in training.")
    ] = False,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Share of new patients of each class whom the conformal sets may miss. (default: 0.1, if there are "
            "enough patients)",
            metavar="A",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the resampling of patients.")] = 0,
    json_: o.Json = False,
) -> None:
    """Fit temperature, thresholds and conformal sets on local labels, and print their uncertainty.

    The model does not change: pass the file to 'usvit score' and 'usvit evaluate' with --calibration. Evaluate it on
    other patients; the patients of the fit are refused. --unit also chooses thresholds of lesions, exams or
    patients, on the pooled calibrated probability of their images. Temperature and conformal sets stay those of images:
    'usvit score' pools calibrated probabilities, and the guarantee of the sets covers means and maxima of images.
    """
    from usvit.scoring import LabelTable, recalibrate

    table = LabelTable(labels, **dict(part(settings, LabelTableSettings)))
    units = part(settings, ScoredUnitSettings)
    record = recalibrate(scores, table, settings=units, out=out, drop_seen=drop_seen, alpha=alpha, seed=seed)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    _show(record)
    print(f"\ncalibration: {out}")
    print("For research use, not a medical device.")


def _show(record: "CalibrationRecord") -> None:
    from usvit.estimate_text import Style, estimate_text

    counts = ", ".join(f"{name} {count}" for name, count in record.class_counts.items())
    print(f"{record.n_images} images in {record.n_groups} groups: {counts}")
    if record.n_seen_images_left_out:
        print(f"{record.n_seen_images_left_out} images left out, because their patients were seen in training")
    if record.seen is not None:
        print(f"images seen in training: {record.seen.answer}")
    print(f"temperature {estimate_text(record.temperature, Style(undefined='none: {reason}'))}")
    _show_thresholds("image", record.thresholds)
    if (fitted := record.unit_thresholds) is not None:
        _show_thresholds(f"{fitted.units.unit}, {fitted.units.pooling}", fitted.thresholds)
    print("corr.: corrected for the optimism of choosing and evaluating on the same patients (patient bootstrap)\n")
    for sentence in record.said:
        print(sentence)
    if record.conformal is not None:
        _show_sets(record.conformal, record.positive_class)


def _show_thresholds(row: str, thresholds: list["FittedThreshold"]) -> None:
    """Print the thresholds of images or units."""
    from usvit.estimate import Estimate
    from usvit.estimate_text import BRACKETS, Style, estimate_text

    print(f"\n{row:20}{'threshold [95 %]':26}{'sensitivity [95 %]':24}{'corr.':8}{'specificity [95 %]':24}{'corr.'}")
    for one in thresholds:
        if one.threshold is None:
            print(f"{one.rule:20}none: {one.reason}")
            continue
        threshold = Estimate(value=one.threshold, ci95=one.ci95)
        cells = [f"{one.rule:20}{estimate_text(threshold, BRACKETS):26}"]
        for figure in (one.sensitivity, one.specificity):
            if figure is not None:
                shown = "-" if figure.corrected is None else f"{figure.corrected:.3f}"
                cells.append(f"{estimate_text(figure, Style(undefined='')):24}{shown:8}")
        print("".join(cells).rstrip())


def _show_sets(fit: "ConformalFit", positive: str) -> None:
    """Print the bounds of the conformal sets and what they guarantee."""
    if fit.reason is not None or fit.positive.bound is None or fit.rest.bound is None:
        print(f"\nconformal sets: none, {fit.reason}")
        return
    print(f"\nconformal sets, alpha = {fit.alpha:g} (usvit score --calibration FILE --abstain-at conformal):")
    for name, bound, one in (
        (positive, f"from {fit.positive.bound:.4f}", fit.positive),
        (f"not {positive}", f"up to {fit.rest.bound:.4f}", fit.rest),
    ):
        low, high = one.coverage or (0.0, 1.0)
        print(
            f"  {name:20}{bound:14}from {one.n_groups} groups; the coverage of this one file is probably (90 %) "
            f"{low:.2f} to {high:.2f}"
        )
    print(
        f"At most {fit.alpha:.0%} of new patients of either class have an image whose set leaves their class out, on "
        "average over calibrations and if they are like these patients. This does not hold for other devices, "
        "another way of choosing images or more images a patient."
    )
