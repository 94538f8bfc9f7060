"""The command ``usvit pretrain``."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.printing import go_on
from usvit.cli.settings import takes_config, takes_options
from usvit.config.sections import Section
from usvit.errors import UsvitError
from usvit.plain_data import Settings
from usvit.upstream.config.pretrain import PretrainArguments, PretrainConfig

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.upstream.records.training import PretrainRecord

RecipeOption = Annotated[
    str | None,
    typer.Option(
        help="A recipe from 'usvit recipes', or a YAML file; options override its settings. (default: fractals)",
        metavar="NAME|FILE",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(help="A name from 'usvit models list', or timm:NAME. (default: the recipe's)", metavar="M"),
]


class PretrainListing(Section):
    """What to show instead of a training."""

    list_sources: bool = False
    """Show the sources and stop."""
    list_cells: bool = False
    """Show the recipe's cells and stop."""


@takes_options(without=["seed"])
@takes_config(PretrainConfig, "source.path", "seed", "device", "precision", "workers")
def pretrain(
    *,
    recipe: RecipeOption = None,
    model: ModelOption = None,
    settings: PretrainArguments,
    data_root: o.DataRoot = None,
    out: o.UpstreamOut = None,
    overrides: Settings,
    json_: o.Json = False,
    listing: PretrainListing,
) -> None:
    """Pre-train a network: supervised, distilled or self-supervised, on one CPU, or on many GPUs with torchrun.

    Without options, it trains a small network on fractal images, which takes about fifteen minutes on two cores. The
    papers' recipes need the papers' images and GPUs; 'usvit docs recipes' describes smaller versions. 'usvit cv
    --model M --weights RUN' starts from the result. The same command resumes an interrupted run.
    """
    if listing.list_sources:
        return _print_sources()
    if listing.list_cells:
        return _print_cells(recipe or "fractals")
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.resources import process_rank
    from usvit.upstream import api

    with o.resumable():
        outcomes = api.pretrain_sweep(
            recipe or "fractals",
            model,
            settings=settings,
            data_root=o.data_roots(data_root),
            out=out,
            progress=make_progress(),
            command=o.command_line(),
            overrides=overrides,
        )
    if process_rank() != 0:
        return None
    if json_:
        results = {name: read_json(outcome.path / "pretrain.json") for name, outcome in outcomes.items()}
        print(json.dumps(results if len(results) > 1 else next(iter(results.values())), indent=2, allow_nan=False))
    else:
        for outcome in outcomes.values():
            _print(outcome)
    return None


def _print(outcome: "RunResult[PretrainRecord]") -> None:
    for kept in outcome.result.kept:
        named = {"train loss": kept.train_loss, "val loss": kept.val_loss, "val accuracy": kept.val_accuracy}
        figures = ", ".join(f"{name} {value:.4g}" for name, value in named.items() if value is not None)
        print(f"fold-{kept.fold}: {kept.step} steps, {figures}")
    where = str(outcome.path)
    print(f"report: {outcome.path / 'report.html'}")
    print(f"curves: history.csv and steps.csv of each fold, or tensorboard --logdir {shlex.quote(where)}")
    if outcome.record.config.objective == "tokenizer":
        if len(outcome.result.kept) > 1:  # a run uses one tokenizer
            where += "/fold-0"
        following = f"usvit pretrain --recipe beit --set beit.tokenizer={shlex.quote(where)}"
    else:
        following = go_on(outcome.path, outcome.record)
    print(f"weights: {outcome.path}\nnext: {following}")


def _print_cells(name: str) -> None:
    from usvit.upstream.config.sweep import cells, read_recipe

    recipe = read_recipe(name, "pretrain")
    found = cells(recipe)
    if not found:
        raise UsvitError(f"The recipe {name} has no cells, because it has no sweep.")
    for cell in found:
        models = [model for model, chosen in recipe.recommended.items() if chosen == cell]
        print(f"{cell:24}{'recommended: ' + ', '.join(models) if models else ''}".rstrip())


def _print_sources() -> None:
    from usvit.upstream.sources.catalog import SOURCES

    width = max(map(len, SOURCES)) + 1
    for name, description in SOURCES.items():
        print(f"{name:{width}} {description}")
