"""``usvit models export``: write a network in a format that other tools read."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.exporting import ExportSettings


@takes_options()
def export(
    source: Annotated[
        str, typer.Argument(help="A run (runs/x), one fold of it (runs/x/fold-2), or a name from 'usvit models list'.")
    ],
    format_: Annotated[str, typer.Option("--format", help="safetensors, onnx or monai.", metavar="FORMAT")],
    out: Annotated[
        Path, typer.Option(help="Folder to write; must be new, empty, or contain the same export.", metavar="DIR")
    ],
    settings: ExportSettings,
    base: o.Base = None,
    json_: o.Json = False,
) -> None:
    """Write a network with its metadata and a model card as safetensors, ONNX, or a MONAI bundle.

    The predictions of ONNX files and MONAI bundles are compared with usvit's before the files are moved to the folder.
    """
    from usvit.exporting import export as export_model

    exported = export_model(source, out, format=format_, settings=settings)
    record = exported.record
    if json_:
        print(json.dumps({"out": str(out), "new": exported.new, **record.content()}, indent=2, ensure_ascii=False))
        return
    if not exported.new:
        print(f"The folder already holds the same export: {out}")
        return
    print(f"{record.architecture} ({', '.join(record.classes)}) as {record.format}: {out}")
    if record.checked:
        print(record.checked)
    print("For research use, not a medical device.")
