"""``usvit dicom``: DICOM files and archives."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY

app = typer.Typer(name="dicom", help="Send DICOM files to archives.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``send`` a command of its own: typer would merge an only command into the group."""


@app.command("send")
def send(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Output folder of 'usvit score', or any folder or DICOM file.", metavar="PATH"),
    ],
    to: Annotated[
        str | None, typer.Option(help="Application entity of the archive (C-STORE).", metavar="AE@HOST:PORT")
    ] = None,
    stow: Annotated[
        str | None, typer.Option(help="Address of a DICOMweb service (STOW-RS) instead.", metavar="URL")
    ] = None,
    calling: Annotated[str, typer.Option(help="AE title of the sender.", metavar="AE")] = "USVIT",
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            help="Certificates that sign the archive's certificate, as PEM; with --to, it turns TLS on.", metavar="FILE"
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Client certificate, if the archive asks for one.", metavar="FILE")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate.", metavar="FILE")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="With --stow: file that holds a bearer token.", metavar="FILE")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for a connection or an answer.", min=0.1, max=3600)
    ] = 30.0,
    record: Annotated[
        Path | None, typer.Option(help="List of what was sent. (default: sent.csv in the folder)", metavar="FILE")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the files, and send nothing.")] = False,
    json_: o.Json = False,
) -> None:
    """Send DICOM files to an archive, and list what was sent in sent.csv.

    The same command sends what is missing; nothing is sent twice. The exit code is 3 if a file was not stored. See
    'usvit docs dicom-out'.
    """
    from usvit.node import send_dicom
    from usvit.progress import make_progress

    found = send_dicom(
        paths,
        to=to,
        stow=stow,
        calling=calling,
        tls_ca=tls_ca,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        token_file=token_file,
        timeout=timeout,
        record=record,
        dry_run=dry_run,
        progress=make_progress(),
    )
    if json_:
        print(json.dumps({**asdict(found), "record": str(found.record)}, indent=2, ensure_ascii=False))
    else:
        warned = f", {found.warned} of them with a warning of the archive" if found.warned else ""
        print(f"{found.sent} files {'would be sent' if dry_run else 'sent'}{warned}")
        if found.before:
            print(f"{found.before} files were sent before")
        if found.left_out:
            print(f"{found.left_out} other files are left out: they are not DICOM files")
        if found.failed:
            print(f"{sum(found.failed.values())} files not sent:")
            for reason, n in sorted(found.failed.items(), key=lambda pair: -pair[1]):
                print(f"  {n:6}  {reason}")
        if not dry_run:
            print(f"list: {found.record}")
    if found.partly:
        raise typer.Exit(EXIT_PARTLY)
