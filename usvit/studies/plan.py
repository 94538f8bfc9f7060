"""Expansion of a study to its runs, each with a complete configuration that is checked before anything starts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from usvit.config import RunConfig, build_config, load_recipe
from usvit.data.datasets import load_cards
from usvit.errors import UsvitError
from usvit.experiments import default_out
from usvit.models import find_model
from usvit.studies.specification import Block, StudyConfig

_OF_THE_GRID = {
    "recipe": "grid.recipes",
    "seed": "seeds (--seeds)",
    "data.dataset": "grid.datasets (--dataset)",
    "model.name": "grid.models",
}


class Cell(NamedTuple):
    """One line of the study's table: everything that identifies a run except its seed."""

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
class StudyPlan:
    """A study with its runs."""

    study: StudyConfig
    runs: tuple[PlannedRun, ...]
    dataset: str | None
    """The data set that replaces those of the file (``--dataset``)."""
    changed: tuple[str, ...]
    """Settings of the command line for all runs, such as ``train.steps=10``."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(run.seed for run in self.runs))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The lines of the table, data set by data set, in the order of the file."""
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
) -> StudyPlan:
    """Plan all runs of a study, seed by seed, so that the table is complete as early as possible.

    Args:
        study: The content of the file.
        dataset: Replaces all its data sets.
        n_seeds: Number of seeds, counted from the first one of the file.
        options: Settings of the command line for all runs (device, precision, workers).
        overrides: The parsed values of ``--set`` for all runs.
        changed: How the page describes ``options`` and ``overrides``.

    Raises:
        UsvitError: A data set, model, recipe or setting is unknown or invalid, a row of the paper has no run, or two
            runs are the same.
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
        _refuse_grid_settings(where, settings)
    for name in dict.fromkeys(name for block in study.grid for name in block.datasets):
        load_cards(name)
    runs = tuple(
        _run(study, block, Cell(one, model, recipe, block.variant), seed, dict(options or {}), dict(overrides or {}))
        for seed, block, one, model, recipe in _grid(study)
    )
    ids = [run.id for run in runs]
    if double := next((one for one in ids if ids.count(one) > 1), None):
        raise UsvitError(
            f"The study {study.name} contains the run {double} twice. Give a block of its grid a 'variant' to "
            "distinguish them, or remove one."
        )
    plan = StudyPlan(study, runs, dataset, changed)
    if dataset is None:
        _refuse_rows_without_a_run(plan)
    return plan


def matches(row: Any, cell: Cell, *, any_dataset: bool = False) -> bool:
    """Return whether a row of the paper (``PrintedRow``) belongs to this line of the table."""
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


def _refuse_grid_settings(where: str, settings: Mapping[str, Any]) -> None:
    for key, instead in _OF_THE_GRID.items():
        inner: Any = settings
        for part in key.split("."):
            inner = inner.get(part) if isinstance(inner, Mapping) else None
        if inner is not None:
            raise UsvitError(f"{where} cannot set {key}: in a study, set it with {instead}.")


def _refuse_rows_without_a_run(plan: StudyPlan) -> None:
    for row in plan.study.paper.rows if plan.study.paper else ():
        fitting = [cell for cell in plan.cells if matches(row, cell)]
        if len(fitting) != 1:
            problem = "no run" if not fitting else f"{len(fitting)} runs; name its recipe or variant"
            raise UsvitError(f"The study {plan.study.name}: the paper's row {row.dataset} x {row.model} has {problem}.")


def as_json(run: PlannedRun) -> dict[str, Any]:
    """Return the entry of a run in ``study.json`` before it starts."""
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
