"""``usvit models export``: a network as others can use it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o


def export(
    source: Annotated[
        str, typer.Argument(help="A run (runs/x), a fold of one (runs/x/fold-2), or a name of 'usvit models list'.")
    ],
    format_: Annotated[str, typer.Option("--format", help="safetensors, onnx or monai.", metavar="FORMAT")],
    out: Annotated[Path, typer.Option(help="Folder to write; absent, empty, or with the same export.", metavar="DIR")],
    weights: Annotated[
        str | None, typer.Option(help="Of a name: hub, scratch, a file or a run. (default: hub)", metavar="W")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Of a name: its outputs, in order: benign,malignant.", metavar="A,B[,C]")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="Of a name: one of --classes. (default: malignant, or the last)", metavar="C")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Of a name: side of the input, in pixels. (default: 224)", min=1)
    ] = None,
    descriptions: Annotated[
        bool,
        typer.Option(
            "--descriptions/--no-descriptions",
            help="Copy descriptions of its training images: by them copies are recognised, and a sketch can be drawn.",
        ),
    ] = True,
    json_: o.Json = False,
) -> None:
    """Write a network with its passport and a model card: as safetensors, as ONNX, or as a MONAI bundle.

    ONNX and MONAI are checked against usvit's own prediction before anything is put in place.
    """
    from usvit.export import export_model

    names = [name.strip() for name in classes.split(",")] if classes else []
    exported = export_model(
        source,
        format_,
        out,
        weights=weights,
        classes=names,
        positive=positive,
        image_size=image_size,
        descriptions=descriptions,
    )
    record = exported.record
    if json_:
        print(json.dumps({"out": str(out), "new": exported.new, **record}, indent=2, ensure_ascii=False))
        return
    if not exported.new:
        print(f"The same export is there already, and whole: {out}")
        return
    print(f"{record['architecture']} ({', '.join(record['classes'])}) as {record['format']}: {out}")
    if record["checked"]:
        print(record["checked"])
    print("For research use, not a medical device.")
