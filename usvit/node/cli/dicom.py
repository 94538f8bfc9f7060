"""``usvit dicom``: DICOM files and archives."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.errors import EXIT_PARTLY
from usvit.node.config.sending import SendSettings

app = typer.Typer(name="dicom", help="Send DICOM files to archives.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``send`` a command of its own: typer would merge an only command into the group."""


@app.command("send")
@takes_options()
def send(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Output folder of 'usvit score', or any folder or DICOM file.", metavar="PATH"),
    ],
    settings: SendSettings,
    json_: o.Json = False,
) -> None:
    """Send DICOM files to an archive, and list what was sent in sent.csv.

    The same command sends what is missing; nothing is sent twice. The exit code is 3 if a file was not stored. See
    'usvit docs dicom-out'.
    """
    from usvit.node import send_dicom
    from usvit.progress import make_progress

    found = send_dicom(paths, settings=settings, progress=make_progress())
    if json_:
        print(json.dumps({**asdict(found), "record": str(found.record)}, indent=2, ensure_ascii=False))
    else:
        warned = f", {found.warned} of them with a warning of the archive" if found.warned else ""
        print(f"{found.sent} files {'would be sent' if settings.dry_run else 'sent'}{warned}")
        if found.before:
            print(f"{found.before} files were sent before")
        if found.left_out:
            print(f"{found.left_out} other files are left out: they are not DICOM files")
        if found.failed:
            print(f"{sum(found.failed.values())} files not sent:")
            for reason, n in sorted(found.failed.items(), key=lambda pair: -pair[1]):
                print(f"  {n:6}  {reason}")
        if not settings.dry_run:
            print(f"list: {found.record}")
    if found.partly:
        raise typer.Exit(EXIT_PARTLY)
