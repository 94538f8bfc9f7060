"""Options that several commands share, said once."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from usvit.errors import UsvitError

Dataset = Annotated[
    str | None,
    typer.Option(help="Data set, or several joined by '+': busi+b. (default: the embedded phantom)", metavar="D[+D]"),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="A name of 'usvit models list', or timm:NAME. (default: vit_b32; on the phantom the demo's)", metavar="M"
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(help="A recipe's name or YAML file. (default: the 2022 study's for the model)", metavar="NAME|FILE"),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="First weights: hub, hub:UPSTREAM, scratch, a file, or a run. (default: the recipe's)",
        metavar="W",
    ),
]
UpstreamPath = Annotated[
    str | None,
    typer.Option(
        "--path", help="Folder of images, or address of shards: of the sources that need one.", metavar="DIR|URL"
    ),
]
UpstreamOut = Annotated[
    Path | None, typer.Option("--out", help="Run directory. (default: a folder in runs/, named after what was asked)")
]
DataRoot = Annotated[
    list[str] | None,
    typer.Option(
        help="Folder of the data set, or one that holds it; NAME=DIR for one of several. (default: $USVIT_DATA)",
        metavar="[NAME=]DIR",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Run directory. (default: runs/<data>-<model>-<recipe>-seed<n>)")]
Seed = Annotated[int | None, typer.Option(help="Of folds, weights, order and augmentation. (default: 0)")]
DeviceOption = Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.", metavar="DEVICE")]
Precision = Annotated[str | None, typer.Option(help="auto, fp32 or bf16.", metavar="P")]
Workers = Annotated[int | None, typer.Option(help="Processes that prepare batches; never changes the result.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, such as train.steps=100; may be repeated.", metavar="KEY=VALUE"),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out unreadable files and list them (exit code 3).")]
KeepConflicts = Annotated[
    bool, typer.Option("--keep-conflicts", help="Keep pixel-identical images that carry different labels.")
]
KeepIds = Annotated[
    bool,
    typer.Option(
        "--keep-ids",
        help="Call the images and patients of folder, table and dicom as these do: the output is then private.",
    ),
]
Manifest = Annotated[
    Path | None, typer.Option(help="Images as 'usvit data prepare' wrote them, instead of --dataset.", metavar="FILE")
]
KeepList = Annotated[
    Path | None, typer.Option(help="CSV of the images to use, as 'usvit data audit' writes it.", metavar="FILE")
]
Folds = Annotated[Path | None, typer.Option(help="Frozen folds, as 'usvit data split' writes them.", metavar="FILE")]
Repeats = Annotated[
    int | None,
    typer.Option(
        help="Complete cross-validations, each with folds and trainings of its own. From 2 on, intervals count the "
        "training, too. (default: 1)",
        metavar="R",
    ),
]
SplitBy = Annotated[
    str | None,
    typer.Option(help="group (patients, copies), or image: it LEAKS, to measure by how much.", metavar="group|image"),
]
ListRecipes = Annotated[bool, typer.Option("--list-recipes", help="Show the recipes and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def data_roots(values: list[str] | None) -> dict[str, Path]:
    """``["busi=x", "y"]`` as ``{"busi": x, "": y}``: a root for one data set, and one for all others."""
    roots: dict[str, Path] = {}
    for value in values or []:
        name, equals, folder = value.partition("=")
        # A folder's own name may hold an '='.
        named = bool(equals) and not Path(value).exists()
        roots[name if named else ""] = Path(folder if named else value)
    return roots


def given(**options: Any) -> dict[str, Any]:
    """Nested settings of those options that were given: ``given(model__name="x")`` -> ``{"model": {"name": "x"}}``."""
    settings: dict[str, Any] = {}
    for key, value in options.items():
        if value is None or value is False:
            continue
        *sections, last = key.split("__")
        inner = settings
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return settings


def name_in(overrides: dict[str, Any], section: str) -> str | None:
    """What ``--set model.name=x`` names; None where nothing does, or where ``--set model=x`` is refused later."""
    inside = overrides.get(section)
    name = inside.get("name") if isinstance(inside, dict) else None
    return None if name is None else str(name)


def command_line() -> str:
    """How the user asked, for the record."""
    return shlex.join(["usvit", *sys.argv[1:]])


def dataset_of(dataset: str | None, manifest: Path | None) -> str | None:
    """The data set asked for: that of the manifest, where one is given.

    Raises:
        UsvitError: both are given.
    """
    if manifest is None:
        return dataset
    if dataset is not None:
        raise UsvitError("Give --dataset or --manifest, not both: a manifest names its data sets.")
    from usvit.data.manifest_file import datasets_of

    return datasets_of(manifest)


@contextmanager
def resumable() -> Iterator[None]:
    """Say, where the user stops it, that the work can go on."""
    try:
        yield
    except KeyboardInterrupt:
        print("Stopped. The same command goes on where it was.", file=sys.stderr)
        raise
