"""``usvit mrmc``: the analysis of a reader study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.reader_study import ReaderStudySettings


@takes_options()
def mrmc(
    answers: Annotated[
        Path,
        typer.Argument(
            help="Table (CSV, Excel or Parquet) with one row for each reader, modality and case.", metavar="ANSWERS"
        ),
    ],
    settings: ReaderStudySettings,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. (default: mrmc-<table>)", metavar="DIR", show_default=False)
    ] = None,
    json_: o.Json = False,
) -> None:
    """Analyse a reader study: figures of readers and modalities, with intervals that count readers and patients.

    Multi-reader multi-case (MRMC) analysis after Obuchowski and Rockette with Hillis' degrees of freedom. Readers are
    compared between modalities, such as unaided and aided, and with a model (--model). Writes mrmc.html, mrmc.json,
    mrmc.md and mrmc.tex.
    """
    from usvit import reports
    from usvit.documents import terminal_text

    record, folder = reports.mrmc(answers, settings=settings, out=out)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(terminal_text(reports.mrmc_document(record)))
    print(f"page: {folder / 'mrmc.html'}")
