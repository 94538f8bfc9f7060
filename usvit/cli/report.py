"""``usvit report``: the page of a finished run, written anew."""

from pathlib import Path
from typing import Annotated

import typer


def report(run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]) -> None:
    """Write a run's report.html again from its files."""
    from usvit.report import write_report

    print(f"report: {write_report(run)}")
