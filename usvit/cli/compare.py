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
        list[Path], typer.Argument(help="Two or more run directories or predictions tables.", metavar="RUN RUN...")
    ],
    positive: Annotated[
        str | None, typer.Option(help="The positive class. (default: the runs', or malignant)", metavar="CLASS")
    ] = None,
    non_inferiority_margin: Annotated[
        float | None,
        typer.Option(
            help="Also test non-inferiority with this margin of AUC, sensitivity and specificity, such as 0.05.",
            metavar="D",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. (default: compare-<run>-<run>...)", metavar="DIR")
    ] = None,
    json_: o.Json = False,
) -> None:
    """Compare runs on the same images and folds with paired, patient-clustered tests, corrected for several pairs.

    Writes compare.html, compare.json, compare.md and compare.tex.
    """
    from usvit import reports
    from usvit.cli.printing import p_value, with_interval

    record, folder = reports.compare(*runs, positive=positive, non_inferiority_margin=non_inferiority_margin, out=out)
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
        for test, answers in tests.items():
            area = getattr(pair, test)
            p = "" if area.p is None else f", p {p_value(area.p)}"
            if several and area.p_holm is not None:
                p += f" (Holm {p_value(area.p_holm)})"
            print(f"{pair.a} minus {pair.b}, {answers}: {with_interval(area)}{p}")
    _print_decisions(record)
    for warning in record.warnings:
        print(f"Warning: {warning}")
    print(f"page: {folder / 'compare.html'}")


def _print_decisions(record: "CompareRecord") -> None:
    """Print differences of decisions for the most probable class, and verdicts of non-inferiority with a margin."""
    from usvit.cli.printing import holm_words, with_interval

    print(f"decisions for {record.positive_class} by the most probable class (the page shows operating points)")
    margin = record.non_inferiority_margin
    for pair in record.pairs:
        first = pair.decisions[0]
        for name, value in (("sensitivity", first.sensitivity), ("specificity", first.specificity)):
            if value is not None:
                print(f"{pair.a} minus {pair.b}, {name}: {with_interval(value)}{holm_words(value)}")
    if margin is None:
        return
    print(f"non-inferiority with a margin of {margin:g}, from the bound of the one-sided 97.5 % interval")
    for pair in record.pairs:
        if pair.non_inferiority is None:
            continue
        figures = [("AUC", pair.non_inferiority.auc)]
        for one in pair.non_inferiority.decisions[:1]:
            figures += [("sensitivity", one.sensitivity), ("specificity", one.specificity)]
        for a, b, side in ((pair.a, pair.b, "a_vs_b"), (pair.b, pair.a, "b_vs_a")):
            for title, both in figures:
                verdict = getattr(both, side)
                shown = f"no bound: {verdict.reason}" if verdict.bound is None else f"bound {verdict.bound:+.3f}"
                print(f"{a} against {b}, {title}: {verdict.verdict} ({shown})")
