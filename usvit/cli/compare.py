"""``usvit compare``: paired comparison of models on the same images."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o


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
    from usvit.documents import terminal_text
    from usvit.evaluation import Columns
    from usvit.reports import comparison_document

    columns = Columns(label=label, prob=tuple(prob or ()), fold=fold, image=image)
    record, folder = reports.compare(
        *runs, positive=positive, margin=margin, test=test, primary=primary, columns=columns, names=name or (), out=out
    )
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(terminal_text(comparison_document(record)))
    print(f"page: {folder / 'compare.html'}")
