"""``usvit report``: page, Markdown and figures of finished runs."""

from pathlib import Path
from typing import Annotated

import typer

from usvit.cli.options import DataRoot, data_roots


def report(
    run: Annotated[
        list[Path], typer.Argument(help="Run directories, or folders of usvit evaluate --out.", metavar="RUN...")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report; several runs get one subfolder each. (default: the run's folder)"),
    ] = None,
    data_root: DataRoot = None,
    include_images: Annotated[
        bool,
        typer.Option("--include-images", help="Show images even if their licence is unclear; keep the report private."),
    ] = False,
    answers: Annotated[
        Path | None, typer.Option(help="YAML file with the authors' answers to the checklists.", metavar="FILE")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="Audit of the same images. (default: RUN/audit, if it exists)", metavar="DIR")
    ] = None,
    prevalence: Annotated[
        float | None,
        typer.Option(help="Also compute PPV and NPV at this prevalence, such as 0.006.", metavar="P"),
    ] = None,
    figures: Annotated[
        str, typer.Option(help="Also write figures as files: svg, pdf, or svg,pdf.", metavar="F[,F]")
    ] = "",
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also write report.pdf, by a Chromium, Chrome or Edge of this machine.")
    ] = False,
) -> None:
    """Write the report of a run: report.html (a single file that works offline), report.md, and figures for a paper.

    The report shows thumbnails if --data-root gives the folder of the images and the data card's licence allows it.
    """
    from usvit import reports

    written, index = reports.report(
        *run,
        out=out,
        data_roots=data_roots(data_root),
        include_images=include_images,
        answers=answers,
        audit=audit,
        prevalence=prevalence,
        figures=tuple(name.strip() for name in figures.split(",") if name.strip()),
        pdf=pdf,
    )
    for one in written:
        print(f"report: {one.page}")
        print(f"        {one.markdown}")
        print(f"        {one.workbook}")
        if one.pdf:
            print(f"        {one.pdf}")
        if one.figures:
            print(f"        {len(one.figures)} figures in {one.figures[0].parent}")
    if index:
        print(f"overview: {index}")
