"""``usvit compare``: paired comparison of models on the same images."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.comparison import ComparisonSettings
from usvit.config.evaluation import Columns


@takes_options(without=["patient", "group"])
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Two or more run directories, tables, or folders of usvit evaluate --out.", metavar="RUN RUN..."
        ),
    ],
    settings: ComparisonSettings,
    columns: Columns,
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
    from usvit.reports import comparison_document

    record, folder = reports.compare(*runs, settings=settings, columns=columns, out=out)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(terminal_text(comparison_document(record)))
    print(f"page: {folder / 'compare.html'}")
