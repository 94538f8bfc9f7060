"""Options that several commands share."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Dataset = Annotated[
    str | None,
    typer.Option(help="Data set, or several joined by '+': busi+b. (default: the embedded phantom)", metavar="D[+D]"),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="A name from 'usvit models list', or timm:NAME. (default: vit_b32; for the phantom, the demo's)",
        metavar="M",
    ),
]
UpstreamOut = Annotated[
    Path | None,
    typer.Option("--out", help="Run directory. (default: a folder in runs/ that is named after the settings)"),
]
DataRoot = Annotated[
    list[str] | None,
    typer.Option(
        help="Folder of the data set, or a folder that contains it; NAME=DIR for one of several data sets. (default: "
        "$USVIT_DATA)",
        metavar="[NAME=]DIR",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Run directory. (default: runs/<data>-<model>-<recipe>-seed<n>)")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, such as train.steps=100. Can be repeated.", metavar="KEY=VALUE"),
]


def _name_base(base: Path | None) -> Path | None:
    """Name the base of adapters for whatever loads networks, also in processes that this one starts."""
    if base is not None:
        os.environ["USVIT_BASE"] = str(base)
    return base


Base = Annotated[
    Path | None,
    typer.Option(
        "--base",
        callback=_name_base,
        help="Weights beside which the adapters of a LoRA run were trained. (default: $USVIT_BASE, or where the run "
        "found them)",
        metavar="FILE|RUN",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def data_roots(values: list[str] | None) -> dict[str, Path]:
    """Parse ``["busi=x", "y"]`` into ``{"busi": x, "": y}``: one root for a data set, and one for all others."""
    roots: dict[str, Path] = {}
    for value in values or []:
        name, equals, folder = value.partition("=")
        # The name of a folder may contain an '='.
        named = bool(equals) and not Path(value).exists()
        roots[name if named else ""] = Path(folder if named else value)
    return roots


def command_line(**hidden: Path | str | None) -> str:
    """Return the command line as the user typed it, for the record; bytes that are not UTF-8 as ``\\udcff``.

    Args:
        **hidden: paths that may name a hospital or a patient; the key in capitals stands for each.
    """
    names = {str(path): name.upper() for name, path in hidden.items() if path is not None}
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=")
        whole = names.get(word) or names.get(str(Path(word)))
        words.append(whole or (f"{option}={names[value]}" if equals and value in names else word))
    return shlex.join(["usvit", *words]).encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def resumable() -> Iterator[None]:
    """Print that the same command resumes the work if the user stops it."""
    try:
        yield
    except KeyboardInterrupt:
        print("Stopped. The same command resumes the work.", file=sys.stderr)
        raise
