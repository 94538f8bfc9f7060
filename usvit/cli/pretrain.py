"""``usvit pretrain``: upstream weights, from a recipe of the sources or of one's own."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.show import go_on
from usvit.errors import UsvitError

if TYPE_CHECKING:
    from usvit.run_dir import Outcome

RecipeOption = Annotated[
    str | None,
    typer.Option(
        help="A recipe of --list-recipes, or a YAML file; all else is its, unless given. (default: fractals)",
        metavar="NAME|FILE",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(help="A name of 'usvit models list', or timm:NAME. (default: the recipe's)", metavar="M"),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        help="Images to learn from, of --list-sources; several joined by '+'. (default: the recipe's)",
        metavar="S[+S]",
    ),
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        help="Of the source data: the data card whose training folds are learnt from. (default: the phantom)",
        metavar="D[+D]",
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="First weights: scratch, hub, hub:UPSTREAM, a file, or a run. (default: the recipe's, mostly scratch)",
        metavar="W",
    ),
]
FoldsOption = Annotated[
    Path | None,
    typer.Option(help="Of the source data: frozen folds, as 'usvit data split' writes them.", metavar="FILE"),
]
Cell = Annotated[
    str | None,
    typer.Option(help="Of a recipe that is a sweep: a cell of --list-cells, recommended, or all.", metavar="NAME"),
]


def pretrain(
    recipe: RecipeOption = None,
    model: ModelOption = None,
    source: SourceOption = None,
    path: o.UpstreamPath = None,
    dataset: DatasetOption = None,
    weights: WeightsOption = None,
    data_root: o.DataRoot = None,
    folds: FoldsOption = None,
    cell: Cell = None,
    out: o.UpstreamOut = None,
    seed: o.Seed = None,
    device: o.DeviceOption = None,
    precision: o.Precision = None,
    workers: o.Workers = None,
    set_: o.Set = None,
    json_: o.Json = False,
    list_recipes: o.ListRecipes = False,
    list_sources: Annotated[bool, typer.Option("--list-sources", help="Show the sources and stop.")] = False,
    list_cells: Annotated[bool, typer.Option("--list-cells", help="Show the recipe's cells and stop.")] = False,
) -> None:
    """Pre-train a network: supervised, distilled or self-supervised, on one CPU or, under torchrun, on many GPUs.

    Without options: a small network on fractal images, some fifteen minutes of two cores. Recipes of papers need their
    images and GPUs; docs/reference/recipes.md makes any of them small. 'usvit cv --model M --weights RUN' begins from
    the result. A killed run is resumed by the same command.
    """
    from usvit.config import PretrainConfig, build, merge, parse_overrides
    from usvit.config.sweep import choose_cells, read_recipe, settings_for, size_note, yielding
    from usvit.resources import process_rank, said_once

    if list_recipes:
        return _print_recipes()
    if list_sources:
        return _print_sources()
    if list_cells:
        return _print_cells(recipe or "fractals")
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
    with said_once():
        read = read_recipe(recipe or "fractals", "pretrain")
        overrides = parse_overrides(set_ or [])
        chosen = o.name_in(overrides, "model") or model
        settings = settings_for(read, chosen)
        variants = {"": {}} if cell is None else choose_cells(read, cell, chosen)
        variants = yielding(variants, merge(options, overrides))  # equal cells are trained once
        if len(variants) > 1 and out is None:
            raise UsvitError("A whole sweep needs a folder for its runs: pass --out DIR.")
        configs = {name: build(PretrainConfig, settings, over, options, overrides) for name, over in variants.items()}
        used = next(iter(configs.values())).source.name
        if (dataset or folds) and "data" not in used.split("+"):
            raise UsvitError(
                f"--dataset and --folds belong to the source data, and the images are those of {used}. Pass --source "
                f"data, or --source {used}+data for both without labels, or leave them out. To keep a data set's "
                f"images out: --set source.exclude=[NAME]."
            )
    if process_rank() == 0 and (note := size_note(read, chosen)):
        print(note, file=sys.stderr)
    from usvit.pretrain.run import run_pretraining  # from here on it takes seconds
    from usvit.progress import make_progress

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
        results = {name: outcome.result for name, outcome in outcomes.items()}
        print(json.dumps(results if len(results) > 1 else next(iter(results.values())), indent=2, allow_nan=False))
    else:
        for outcome in outcomes.values():
            _print(outcome)
    return None


def _print(outcome: "Outcome") -> None:
    for kept in outcome.result["kept"]:
        figures = ", ".join(
            f"{key.replace('_', ' ')} {kept[key]:.4g}"
            for key in ("train_loss", "val_loss", "val_accuracy")
            if kept.get(key) is not None
        )
        print(f"fold-{kept['fold']}: {kept['step']} steps, {figures}")
    where = str(outcome.path)
    print(f"report: {outcome.path / 'report.html'}")
    print(f"curves: history.csv and steps.csv of each fold, or tensorboard --logdir {shlex.quote(where)}")
    if outcome.record["config"]["objective"] == "tokenizer":
        if len(outcome.result["kept"]) > 1:  # one tokenizer makes the words of a whole run
            where += "/fold-0"
        following = f"usvit pretrain --recipe beit --set beit.tokenizer={shlex.quote(where)}"
    else:
        following = go_on(outcome.path, outcome.record)
    print(f"weights: {outcome.path}\ngo on with: {following}")


def _print_recipes() -> None:
    from usvit.config import PretrainConfig, build, recipe_names
    from usvit.config.sweep import cells, read_recipe, settings_for
    from usvit.resources import configs_dir

    print(f"{'recipe':22}{'learns':14}{'from':15}{'model':20}{'px':>4}  {'for':15}{'begins from':18}source")
    for name in recipe_names("pretrain"):
        recipe = read_recipe(name, "pretrain")
        config = build(PretrainConfig, settings_for(recipe))
        learns = f"{config.distill.kind} teacher" if config.distill.kind != "none" else config.objective
        length = f"{config.train.steps:,} steps" if config.train.steps else f"{config.train.epochs:g} epochs"
        said = (configs_dir() / "pretrain" / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
        paper = re.match(r"# ([^(:]*?\d{4})", said)
        tail = f"; {len(found)} cells" if (found := cells(recipe)) else ""
        print(
            f"{name:22}{learns:14}{config.source.name:15}{config.model.name:20}{config.model.image_size:>4}  "
            f"{length:15}{config.model.weights.removeprefix('runs/'):18}{paper[1] if paper else 'ours'}{tail}"
        )
    print("Other models of a recipe, its values and results: the head of its file, and docs/reference/recipes.md.")


def _print_cells(name: str) -> None:
    from usvit.config.sweep import cells, read_recipe

    recipe = read_recipe(name, "pretrain")
    found = cells(recipe)
    if not found:
        raise UsvitError(f"The recipe {name} has no sweep, so it has no cells.")
    for cell in found:
        models = [model for model, chosen in recipe.recommended.items() if chosen == cell]
        print(f"{cell:24}{'recommended: ' + ', '.join(models) if models else ''}".rstrip())


def _print_sources() -> None:
    from usvit.data.sources.catalog import SOURCES

    width = max(map(len, SOURCES)) + 1
    for name, description in SOURCES.items():
        print(f"{name:{width}} {description}")
