"""``usvit compare``: paired comparison of models on the same images."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o

if TYPE_CHECKING:
    from usvit.records import CompareRecord


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Two or more run directories, tables, or folders of usvit evaluate --out.", metavar="RUN RUN..."
        ),
    ],
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a table on the page, such as sklearn. Can be repeated, for each table, or for each run and "
            "table.",
            metavar="NAME",
        ),
    ] = None,
    label: o.Label = None,
    prob: o.Prob = None,
    fold: o.Fold = None,
    image: o.Image = None,
    positive: o.Positive = None,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            "--non-inferiority-margin",
            help="Also test non-inferiority or equivalence with this margin of AUC, accuracy, sensitivity and "
            "specificity, such as 0.05.",
            metavar="M",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="noninferiority: one run is not worse by --margin or more. equivalence: they differ by less than "
            "--margin either way. (default: noninferiority)",
            metavar="TEST",
        ),
    ] = None,
    primary: Annotated[
        str,
        typer.Option(
            help="The figure that the claim is about; it alone gets verdicts. Choose it before the runs are compared: "
            "AUC, accuracy, sensitivity, specificity, or one of an operating point such as 'specificity, sensitivity "
            ">= 0.95'.",
            metavar="FIGURE",
        ),
    ] = "AUC",
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. (default: compare-<run>-<run>...)", metavar="DIR")
    ] = None,
    json_: o.Json = False,
) -> None:
    """Compare runs on the same images and folds with paired, patient-clustered tests, corrected for several pairs.

    Beside a run, a table of another tool needs only the names of the images and the probabilities: columns are found,
    and labels, groups and folds are those of the run. Writes compare.html, compare.json, compare.md and compare.tex.
    """
    from usvit import reports
    from usvit.cli.printing import p_value, with_interval
    from usvit.evaluation import Columns

    columns = Columns(label=label, prob=tuple(prob or ()), fold=fold, image=image)
    record, folder = reports.compare(
        *runs, positive=positive, margin=margin, test=test, primary=primary, columns=columns, names=name or (), out=out
    )
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(f"{record.n_images} images in {record.n_groups} groups, {record.n_folds} folds")
    folds, several = record.n_folds > 1, len(record.pairs) > 1
    what = ", mean within folds [95 % interval]; pooled" if folds else " [95 % interval]"
    print(f"AUC, {record.positive_class} vs rest{what}")
    wide = max(len(run.name) for run in record.runs)
    for run in record.runs:
        pooled = f"; {with_interval(run.auc)}" if folds else ""
        print(f"  {run.name:{wide}}  {with_interval(run.headline)}{pooled}")
    tests = {"headline": "these two models"}
    if folds:
        tests = {"headline": "way of training (corrected)", "auc": "these predictions (pooled)"}
    for pair in record.pairs:
        for test_name, answers in tests.items():
            area = getattr(pair, test_name)
            p = "" if area.p is None else f", p {p_value(area.p)}"
            if several and area.p_holm is not None:
                p += f" (Holm {p_value(area.p_holm)})"
            print(f"{pair.a} minus {pair.b}, {answers}: {with_interval(area)}{p}")
    _print_decisions(record)
    _print_claims(record)
    for warning in record.warnings:
        print(f"Warning: {warning}")
    print(f"page: {folder / 'compare.html'}")


def _print_decisions(record: "CompareRecord") -> None:
    """Print differences of decisions for the most probable class."""
    from usvit.cli.printing import holm_words, with_interval

    where = "mean of the folds' differences; the page shows operating points"
    if record.n_folds == 1:
        where = "these two models; the page shows operating points"
    print(f"decisions for {record.positive_class} by the most probable class ({where})")
    for pair in record.pairs:
        first = pair.decisions[0]
        for name, value in (("sensitivity", first.sensitivity), ("specificity", first.specificity)):
            if value is not None:
                print(f"{pair.a} minus {pair.b}, {name}: {with_interval(value)}{holm_words(value)}")
        if pair.accuracy is not None:
            print(f"{pair.a} minus {pair.b}, accuracy: {with_interval(pair.accuracy)}{holm_words(pair.accuracy)}")


def _print_claims(record: "CompareRecord") -> None:
    """Print the verdicts of non-inferiority or equivalence of the primary figure."""
    from usvit.cli.printing import p_value
    from usvit.reports import claim_lines, claims_title

    if title := claims_title(record):
        print(title.replace("other figures are shown without", "the page has the other figures"))
    for one in claim_lines(record):
        if one.figure != record.primary_figure:
            continue
        p = "" if one.p is None else f", p {p_value(one.p)}"
        corrected = "" if one.p_holm is None or one.p_holm == one.p else f" (Holm {p_value(one.p_holm)})"
        print(f"{one.runs}, {one.figure}: {one.verdict} ({one.limits}{p}{corrected})")
