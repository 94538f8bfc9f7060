"""``usvit data split``: save folds to a file."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_config, takes_options
from usvit.config import RunConfig
from usvit.config.data_commands import SplitArguments
from usvit.config.own_table import TableSettings
from usvit.plain_data import Settings


@takes_options(without=["scheme", "repeats", "unit", "seed"])
@takes_config(
    RunConfig,
    "split.repeats",
    "split.unit",
    "split.scheme",
    "seed",
    "data.keep_list",
    "data.skip_bad",
    "data.keep_label_conflicts",
    "data.keep_ids",
)
def split(
    *,
    out: Annotated[
        Path, typer.Option(help="CSV file to write, with columns dataset, image_id, fold and part.", metavar="FILE")
    ],
    dataset: o.Dataset = None,
    data_root: o.DataRoot = None,
    own: TableSettings,
    settings: SplitArguments,
    overrides: Settings,
    json_: o.Json = False,
) -> None:
    """Save grouped, stratified folds to a CSV file, with a summary beside it.

    'usvit cv --folds FILE' uses them unchanged. Every run records the hash of the file.
    """
    from usvit.config import merge
    from usvit.data import datasets
    from usvit.progress import make_progress

    summary = datasets.split(
        dataset if settings.manifest else own.dataset(dataset),
        out,
        settings=settings,
        data_root=o.data_roots(data_root),
        overrides=merge({"data": own.data()}, overrides),
        progress=make_progress(),
    )
    if json_:
        print(json.dumps(summary.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    for row in summary.parts:
        classes = ", ".join(f"{count} {label}" for label, count in row.classes.items())
        print(f"fold {row.fold} {row.part:5} {row.images:6} images {row.groups:6} groups   {classes}")
    if summary.unit == "image":
        print(f"LEAKING SPLIT (by image, as requested): {summary.leaking_groups} groups are in two splits of a fold.")
    print(f"{summary.n_images} images in {summary.n_groups} groups; sha256 {summary.sha256[:12]}: {out}")
