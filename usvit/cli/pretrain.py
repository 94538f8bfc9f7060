"""``usvit pretrain``: upstream weights, from a recipe of the sources or of one's own."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.errors import UsvitError

if TYPE_CHECKING:
    from usvit.pretrain.run import Outcome

RecipeOption = Annotated[
    str | None,
    typer.Option(help="A recipe of --list-recipes, or a YAML file. (default: fractals)", metavar="NAME|FILE"),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        help="Images to learn from: fractals, phantom, folder, shards, imagenet, ..., data; several joined by '+'.",
        metavar="S[+S]",
    ),
]
PathOption = Annotated[
    str | None, typer.Option("--path", help="Folder of images, or address of shards.", metavar="DIR|URL")
]
Cell = Annotated[
    str | None,
    typer.Option(help="Of a recipe that is a sweep: a cell of --list-cells, recommended, or all.", metavar="NAME"),
]


def pretrain(
    recipe: RecipeOption = None,
    model: o.Model = None,
    source: SourceOption = None,
    path: PathOption = None,
    dataset: o.Dataset = None,
    weights: o.WeightsOption = None,
    data_root: o.DataRoot = None,
    folds: o.Folds = None,
    cell: Cell = None,
    out: o.Out = None,
    seed: o.Seed = None,
    device: o.DeviceOption = None,
    precision: o.Precision = None,
    workers: o.Workers = None,
    set_: o.Set = None,
    json_: o.Json = False,
    list_recipes: Annotated[bool, typer.Option("--list-recipes", help="Show the recipes and stop.")] = False,
    list_sources: Annotated[bool, typer.Option("--list-sources", help="Show the sources and stop.")] = False,
    list_cells: Annotated[bool, typer.Option("--list-cells", help="Show the recipe's cells and stop.")] = False,
) -> None:
    """Pre-train a network: supervised, distilled or self-supervised, on one CPU or, under torchrun, on many GPUs.

    Without options: a small network on fractal images. 'usvit cv --weights RUN' begins from the result. A killed
    run is resumed by the same command.
    """
    from usvit.config import PretrainConfig, build, parse_overrides
    from usvit.config.sweep import cells, choose_cells, read_recipe, settings_for, size_note

    if list_recipes:
        return _print_recipes()
    if list_sources:
        return _print_sources()
    read = read_recipe(recipe or "fractals", "pretrain")
    if list_cells:
        print("\n".join(cells(read)))
        return None
    options = o.given(
        data__dataset=dataset,
        split__file=folds and str(folds),
        source__name=source,
        source__path=path,
        model__name=model,
        model__weights=weights,
        seed=seed,
        device=device,
        precision=precision,
        workers=workers,
    )
    overrides = parse_overrides(set_ or [])
    chosen = overrides.get("model", {}).get("name", model)
    settings = settings_for(read, chosen)
    variants = {"": {}} if cell is None else choose_cells(read, cell, chosen)
    if len(variants) > 1 and out is None:
        raise UsvitError("A whole sweep needs a folder for its runs: pass --out DIR.")
    configs = {name: build(PretrainConfig, settings, over, options, overrides) for name, over in variants.items()}
    if note := size_note(read, chosen):
        print(note, file=sys.stderr)
    from usvit.pretrain.run import run_pretraining  # from here on it takes seconds
    from usvit.progress import make_progress
    from usvit.resources import process_rank

    outcomes = {}
    with o.resumable():
        for name, config in configs.items():
            outcomes[name] = run_pretraining(
                config,
                roots=o.data_roots(data_root),
                out=out / name if out is not None and len(configs) > 1 else out,
                command=o.command_line(),
                progress=make_progress(),
            )
    if process_rank() != 0:
        return None
    if json_:
        results = {name: outcome.metrics for name, outcome in outcomes.items()}
        print(json.dumps(results if len(results) > 1 else next(iter(results.values())), indent=2, allow_nan=False))
    else:
        for outcome in outcomes.values():
            _print(outcome)
    return None


def _print(outcome: "Outcome") -> None:
    for kept in outcome.metrics["kept"]:
        figures = ", ".join(
            f"{key.replace('_', ' ')} {kept[key]:.4g}"
            for key in ("train_loss", "val_loss", "val_accuracy")
            if kept.get(key) is not None
        )
        print(f"fold {kept['fold']}: {kept['step']} steps, {figures}")
    print(f"weights: {outcome.path}    go on with: usvit cv --weights {outcome.path}")


def _print_recipes() -> None:
    from usvit.config import recipe_names
    from usvit.resources import configs_dir

    for name in recipe_names("pretrain"):
        first = (configs_dir() / "pretrain" / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
        print(f"{name:24} {first.lstrip('# ')}")


def _print_sources() -> None:
    from usvit.data.sources.catalog import SOURCES

    for name, description in SOURCES.items():
        print(f"{name:16} {description}")
