"""``usvit compare``: is one model better than another on the same images?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more run directories or predictions tables.", metavar="RUN RUN...")
    ],
    positive: Annotated[
        str | None, typer.Option(help="The positive class. (default: the runs', or malignant)", metavar="CLASS")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. (default: compare-<run>-<run>...)", metavar="DIR")
    ] = None,
    json_: o.Json = False,
) -> None:
    """Compare runs on the same images and folds: paired, patients respected, corrected for looking at several pairs.

    Writes compare.html, compare.json, compare.md and compare.tex.
    """
    from usvit.cli.show import with_interval
    from usvit.report.compare import compare_runs

    record, folder = compare_runs(runs, positive=positive, out=out)
    if json_:
        print(json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(f"{record['n_images']} images in {record['n_groups']} groups, {record['n_folds']} folds")
    folds, several = record["n_folds"] > 1, len(record["pairs"]) > 1
    what = ", mean within folds [95 % interval]; pooled" if folds else " [95 % interval]"
    print(f"AUC, {record['positive_class']} vs rest{what}")
    wide = max(len(run["name"]) for run in record["runs"])
    for run in record["runs"]:
        pooled = f"; {with_interval(run['auc'])}" if folds else ""
        print(f"  {run['name']:{wide}}  {with_interval(run['headline'])}{pooled}")
    tests = {"headline": "these two models"}
    if folds:
        tests = {"headline": "way of training (corrected)", "auc": "these predictions (pooled)"}
    for pair in record["pairs"]:
        for test, answers in tests.items():
            area = pair[test]
            p = "" if area.get("p") is None else f", p {p_value(area['p'])}"
            if several and area.get("p_holm") is not None:
                p += f" (Holm {p_value(area['p_holm'])})"
            print(f"{pair['a']} less {pair['b']}, {answers}: {with_interval(area)}{p}")
    for warning in record["warnings"]:
        print(f"Mind: {warning}")
    print(f"page: {folder / 'compare.html'}")


def p_value(p: float) -> str:
    """``0.032``, ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
