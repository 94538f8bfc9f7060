"""From a study's file to its runs, each a complete configuration that was checked before anything begins."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from usvit.config import RunConfig, build_config, load_recipe
from usvit.data.cards import load_cards
from usvit.errors import UsvitError
from usvit.job import default_out
from usvit.models.zoo import find_model
from usvit.study.spec import Block, StudyConfig

_OF_THE_GRID = {
    "recipe": "grid.recipes",
    "seed": "seeds (--seeds)",
    "data.dataset": "grid.datasets (--dataset)",
    "model.name": "grid.models",
}


class Cell(NamedTuple):
    """One line of the study's table: everything of a run but its seed."""

    dataset: str
    model: str
    recipe: str
    variant: str | None


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study."""

    id: str
    """Name of its folder under ``STUDY/runs``."""
    cell: Cell
    seed: int
    config: RunConfig


@dataclass(frozen=True)
class Plan:
    """A study as it is run."""

    study: StudyConfig
    runs: tuple[PlannedRun, ...]
    dataset: str | None
    """The data set that takes the place of the file's (``--dataset``)."""
    changed: tuple[str, ...]
    """What the command line changed for all runs, such as ``train.steps=10``."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(run.seed for run in self.runs))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Lines of the table: data set by data set, in the order of the file."""
        cells = list(dict.fromkeys(run.cell for run in self.runs))
        order = list(dict.fromkeys(cell.dataset for cell in cells))
        return tuple(sorted(cells, key=lambda cell: order.index(cell.dataset)))


def make_plan(
    study: StudyConfig,
    *,
    dataset: str | None = None,
    n_seeds: int | None = None,
    options: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    changed: tuple[str, ...] = (),
) -> Plan:
    """Every run of a study, in the order in which they are run: seed by seed, so that the table fills first.

    Args:
        study: the file.
        dataset: takes the place of all its data sets.
        n_seeds: so many seeds, counted on from the file's first one.
        options: of the command line for all runs (device, precision, workers).
        overrides: ``--set`` for all runs, parsed.
        changed: what to say of ``options`` and ``overrides`` in the study's page.

    Raises:
        UsvitError: a data set, model, recipe or setting is unknown or cannot be, a paper's row has no run, or two runs
            would be one.
    """
    if dataset is not None:
        blocks = tuple(block.model_copy(update={"datasets": (dataset,)}) for block in study.grid)
        study = study.model_copy(update={"grid": blocks})
    if n_seeds is not None:
        study = study.model_copy(update={"seeds": tuple(study.seeds[0] + k for k in range(n_seeds))})
    for where, settings in [
        ("settings", study.settings),
        *((f"grid.{k}.settings", block.settings) for k, block in enumerate(study.grid)),
        ("--set", overrides or {}),
    ]:
        _refuse_the_grids_own(where, settings)
    for name in dict.fromkeys(name for block in study.grid for name in block.datasets):
        load_cards(name)
    runs = tuple(
        _run(study, block, Cell(one, model, recipe, block.variant), seed, dict(options or {}), dict(overrides or {}))
        for seed, block, one, model, recipe in _grid(study)
    )
    ids = [run.id for run in runs]
    if double := next((one for one in ids if ids.count(one) > 1), None):
        raise UsvitError(
            f"The study {study.name} holds the run {double} twice. Give one of its grid's blocks a 'variant' that "
            "tells them apart, or leave one out."
        )
    plan = Plan(study, runs, dataset, changed)
    if dataset is None:
        _refuse_rows_without_a_run(plan)
    return plan


def matches(row: Any, cell: Cell, *, any_dataset: bool = False) -> bool:
    """Whether a paper's row (``spec.PrintedRow``) is of this line of the table."""
    return (
        (any_dataset or row.dataset == cell.dataset)
        and row.model == cell.model
        and row.recipe in (None, cell.recipe)
        and row.variant in (None, cell.variant)
    )


def _grid(study: StudyConfig) -> Iterator[tuple[int, Block, str, str, str]]:
    for seed in dict.fromkeys(study.seeds):
        for block in study.grid:
            for dataset in block.datasets:
                for model in block.models:
                    for recipe in block.recipes:
                        yield seed, block, dataset, model, recipe


def _run(
    study: StudyConfig, block: Block, cell: Cell, seed: int, options: dict[str, Any], overrides: dict[str, Any]
) -> PlannedRun:
    own = {"data": {"dataset": cell.dataset}, "model": {"name": cell.model}, "seed": seed}
    try:
        recipe = load_recipe(cell.recipe)
        config = build_config(recipe, study.settings, block.settings, own, options, overrides)
        find_model(cell.model, config.model.vit.model_dump(exclude_none=True))
    except UsvitError as error:
        raise UsvitError(f"The study {study.name}, {cell.dataset} x {cell.model} x {cell.recipe}: {error}") from error
    name = default_out(study.protocol, config).name
    return PlannedRun(f"{name}-{block.variant}" if block.variant else name, cell, seed, config)


def _refuse_the_grids_own(where: str, settings: Mapping[str, Any]) -> None:
    for key, instead in _OF_THE_GRID.items():
        inner: Any = settings
        for part in key.split("."):
            inner = inner.get(part) if isinstance(inner, Mapping) else None
        if inner is not None:
            raise UsvitError(f"{where} cannot set {key}: in a study that is {instead}.")


def _refuse_rows_without_a_run(plan: Plan) -> None:
    for row in plan.study.paper.rows if plan.study.paper else ():
        fitting = [cell for cell in plan.cells if matches(row, cell)]
        if len(fitting) != 1:
            problem = "no run" if not fitting else f"{len(fitting)} runs; name its recipe or variant"
            raise UsvitError(f"The study {plan.study.name}: the paper's row {row.dataset} x {row.model} has {problem}.")


def as_json(run: PlannedRun) -> dict[str, Any]:
    """What ``study.json`` says of a run before it begins."""
    return {
        "id": run.id,
        **run.cell._asdict(),
        "seed": run.seed,
        "state": "waiting",
        "attempts": 0,
        "error": None,
        "seconds": None,
        "config": run.config.model_dump(mode="json"),
    }
