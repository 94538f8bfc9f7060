"""Expansion of a study to its rows and runs, each with a complete configuration, before anything starts."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from usvit.config import RunConfig, config_keys, identity, merge, nested
from usvit.config.run import flattened
from usvit.data.datasets import load_cards
from usvit.errors import UsvitError, unknown
from usvit.files import sha256_of_text
from usvit.plain_data import Settings
from usvit.upstream.records.study import Kind, Scale
from usvit.upstream.studies.kinds import KINDS, check_figure
from usvit.upstream.studies.metric_names import OF_NETWORK
from usvit.upstream.studies.printed import Printed
from usvit.upstream.studies.specification import Row, Step, StudyConfig
from usvit.upstream.studies.steps import (
    build_step,
    name_of,
    placeholders,
    prune,
    replaced,
    settings_of,
)
from usvit.upstream.studies.tiny import MAX_CELLS, tiny_settings

MAX_ROWS = 10_000
"""Maximum number of rows times seeds. The largest shipped study has 100."""
_OF_THE_ROWS = {
    "recipe": "'recipe' of a step, or grid.recipes",
    "seed": "seeds (--seeds)",
    "data.dataset": "'dataset' of a step, or grid.datasets (--dataset)",
    "model.name": "'model' of a row, or grid.models",
    "source.name": "'source' of a step",
}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study."""

    id: str
    """Name of its folder."""
    kind: Kind
    seed: int
    config: Mapping[str, Any]
    """The configuration as plain data; ``${ID}`` stands for the run directory of another run."""
    recorded: Mapping[str, Any]
    """The configuration in ``study.json``: complete for ``cv`` and ``train``, otherwise without default values."""
    needs: tuple[str, ...] = ()
    """The runs that have to be finished before it."""

    @cached_property
    def settings(self) -> BaseModel:
        """The configuration, as the experiment gets it but for the run directories of other runs."""
        return KINDS[self.kind].config.model_validate(self.config)


@dataclass(frozen=True)
class PlannedRow:
    """A row of the table."""

    name: str
    group: str | None
    model: str | None
    network: Mapping[str, Any]
    """The section ``model`` of the row's settings: parts of the network's shape, the image size."""
    printed: Mapping[str, Printed]
    note: str | None
    runs: Mapping[int, Mapping[str, str]]
    """Seed -> name of a step -> id of its run."""


@dataclass(frozen=True)
class StudyPlan:
    """A study with its rows and runs."""

    study: StudyConfig
    runs: tuple[PlannedRun, ...]
    """Each run once, after those that it needs; seed by seed, so that the table is complete as early as possible."""
    rows: tuple[PlannedRow, ...]
    seeds: tuple[int, ...]
    dataset: str | None = None
    """The data set that replaces those of the file (``--dataset``)."""
    scale: Scale = "paper"
    """``paper``, or ``tiny`` for the same runs with tiny networks on generated images."""
    changed: tuple[str, ...] = ()
    """Settings of the command line for all runs, such as ``train.steps=10``."""

    @cached_property
    def by_id(self) -> dict[str, PlannedRun]:
        return {run.id: run for run in self.runs}

    @cached_property
    def figures_of(self) -> dict[str, set[str]]:
        """Id of a run -> the figures of its result that the table is made from."""
        found: dict[str, set[str]] = {run.id: set() for run in self.runs}
        for row in self.rows:
            for of_row in row.runs.values():
                for name, column in self.study.columns.items():
                    steps = () if column.figure in OF_NETWORK else steps_of(self.study, name, of_row)
                    for step in steps:
                        found[of_row[step]].add(column.figure)
        return found


@dataclass
class _Layers:
    """Settings that are the same for all runs of a kind, and what ``--dataset`` and ``--scale`` replace."""

    study: StudyConfig
    options: Settings
    overrides: Settings
    dataset: str | None
    scale: Scale

    def above(self, kind: Kind) -> tuple[Settings, ...]:
        schema = KINDS[kind].config
        return prune(self.options, schema), prune(self.overrides, schema)


def make_plan(
    study: StudyConfig,
    *,
    dataset: str | None = None,
    n_seeds: int | None = None,
    options: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    changed: tuple[str, ...] = (),
    scale: Scale = "paper",
) -> StudyPlan:
    """Plan all runs of a study.

    Args:
        study: The content of the file.
        dataset: Replaces all its data sets.
        n_seeds: Number of seeds, counted from the first one of the file.
        options: Settings of the command line for all runs (device, precision, workers).
        overrides: The parsed values of ``--set``, for all runs that have these settings.
        changed: How the page describes ``options`` and ``overrides``.
        scale: ``paper``; or ``tiny`` for tiny networks on generated images, which shows that the study works.

    Raises:
        UsvitError: A data set, model, recipe or setting is unknown or invalid, a step needs one that does not exist,
            the steps of a row form a circle, a column has no run, or two rows are the same.
    """
    if scale not in ("paper", "tiny"):
        raise unknown("scale", scale, ("paper", "tiny"))
    _refuse_too_many_rows(study, len(study.seeds) if n_seeds is None else n_seeds)
    seeds = study.seeds if n_seeds is None else tuple(study.seeds[0] + k for k in range(n_seeds))
    seeds = tuple(dict.fromkeys(seeds))
    _refuse_settings_of_rows(study, overrides or {})
    _refuse_unknown_settings(study, {**(options or {}), **(overrides or {})})
    layers = _Layers(study, dict(options or {}), dict(overrides or {}), dataset, scale)
    rows = [*study.rows, *_of_grid(study, dataset)]
    found: dict[str, PlannedRun] = {}
    runs_of: list[dict[int, dict[str, str]]] = [{} for _ in rows]
    for seed in seeds:
        for row, runs in zip(rows, runs_of, strict=True):
            runs[seed] = _plan_row(layers, row, seed, found)
    planned = [
        PlannedRow(
            row.name,
            row.group,
            row.model,
            nested(row.settings).get("model", {}),
            row.printed,
            row.note,
            runs,
        )
        for row, runs in zip(rows, runs_of, strict=True)
    ]
    _refuse_equal_rows(study, planned)
    _check_columns(study, planned, found)
    return StudyPlan(study, tuple(found.values()), tuple(planned), seeds, dataset, scale, changed)


def _refuse_too_many_rows(study: StudyConfig, n_seeds: int) -> None:
    if study.n_rows * n_seeds > MAX_ROWS:
        raise UsvitError(
            f"The study {study.name} has {study.n_rows:,} rows with {n_seeds:,} seeds, and at most {MAX_ROWS:,} rows "
            "times seeds are supported. Divide it into several studies."
        )


def _of_grid(study: StudyConfig, dataset: str | None) -> Iterator[Row]:
    """Yield the rows of the grid, data set by data set in the order of the file."""
    blocks = study.grid
    if dataset is not None:
        blocks = tuple(block.model_copy(update={"datasets": (dataset,)}) for block in blocks)
    cells = [
        (one, block, model, recipe)
        for block in blocks
        for one in block.datasets
        for model in block.models
        for recipe in block.recipes
    ]
    order = {one: place for place, one in enumerate(dict.fromkeys(one for one, *_ in cells))}
    pairs = Counter((one, model) for one, _, model, _ in cells)
    for one, block, model, recipe in sorted(cells, key=lambda cell: order[cell[0]]):
        alone = pairs[one, model] == 1
        name = ", ".join(filter(None, (model, None if alone else recipe, None if alone else block.variant)))
        step = Step(run=study.protocol, recipe=recipe, dataset=one, settings=block.settings, variant=block.variant)
        others = dict.fromkeys(study.steps)
        yield Row(name=name, group=one, model=model, steps={**others, study.protocol: step})


def _plan_row(layers: _Layers, row: Row, seed: int, found: dict[str, PlannedRun]) -> dict[str, str]:
    """Add the runs of a row to ``found``; return the name of each step and the id of its run."""
    study = layers.study
    steps = _merged_steps(study, row)
    ids: dict[str, str] = {}
    for name in _ordered(study, row, steps):
        step = steps[name]
        kind: Kind = step.run  # type: ignore[assignment]
        own_seed = seed if step.seed is None else step.seed
        if layers.dataset is not None and kind in ("cv", "train"):
            step = step.model_copy(update={"dataset": layers.dataset})
        try:
            if step.dataset is not None:
                load_cards(step.dataset)
            config = _built(layers, row, step, kind, own_seed)
        except UsvitError as error:
            raise UsvitError(f"The study {study.name}, row '{row.name}', step {name}: {error}") from error
        run = _planned(kind, config, own_seed, ids, step.variant)
        if found.setdefault(run.id, run).config != run.config:
            raise UsvitError(
                f"The study {study.name} contains the run {run.id} twice, with different settings. Give a step, "
                "or a block of its grid, a 'variant' to distinguish them, or remove one."
            )
        ids[name] = run.id
    return ids


def _built(layers: _Layers, row: Row, step: Step, kind: Kind, seed: int) -> BaseModel:
    study = layers.study
    own = layers.above(kind)
    arguments: Settings = {"model": row.model, "row": nested(row.settings), "seed": seed}
    config = build_step(step, **arguments, below=nested(study.settings), above=own)
    if layers.scale == "paper":
        return config
    shrunk = merge(
        tiny_settings(kind, config, step.model or row.model, arguments["row"]),
        prune(nested(study.tiny), KINDS[kind].config),
    )
    return build_step(step, **arguments, below=nested(study.settings), above=(shrunk, *own), max_cells=MAX_CELLS)


def _planned(kind: Kind, config: BaseModel, seed: int, ids: Mapping[str, str], variant: str | None) -> PlannedRun:
    needs = tuple(dict.fromkeys(ids[name] for name in placeholders(config.model_dump_json())))
    # A transfer takes the size of its images from its weights unless it is set, so unset values are left out.
    of_weights = kind in ("transfer", "test")
    wanted = config.model_dump(mode="json", exclude_unset=of_weights)
    if needs:
        wanted = replaced(wanted, ids, "${{{}}}")
    name = name_of(kind, config)
    if isinstance(config, RunConfig) and not needs:
        return PlannedRun(f"{name}-{variant}" if variant else name, kind, seed, wanted, wanted, needs)
    # Defaults are left out, so that settings that a later version adds do not change the name.
    given = config.model_dump(mode="json", exclude_unset=of_weights, exclude_defaults=not of_weights)
    content = identity(replaced(given, ids) if needs else given)
    digest = sha256_of_text(json.dumps([kind, sorted(content.items(), key=lambda item: item[0])]))[:8]
    recorded = replaced(given, ids, "${{{}}}") if needs else given
    return PlannedRun(f"{name}-{digest}", kind, seed, wanted, recorded, needs)


def _merged_steps(study: StudyConfig, row: Row) -> dict[str, Step]:
    steps = dict(study.steps)
    for name, change in row.steps.items():
        if change is None:
            if name not in study.steps:
                raise _wrong(study, row, f"it removes the step {name}, which the study does not have")
            steps.pop(name)
        elif change.run is None and name in steps:
            given = change.model_dump(exclude_unset=True)
            if "settings" in given:
                given["settings"] = merge(nested(steps[name].settings), nested(given["settings"]))
            steps[name] = steps[name].model_copy(update=given)
        elif change.run is None:
            known = ", ".join(study.steps) or "none"
            raise _wrong(study, row, f"the new step {name} lacks 'run', or its name is wrong (the study has {known})")
        else:
            steps[name] = change
    return steps


def _ordered(study: StudyConfig, row: Row, steps: Mapping[str, Step]) -> list[str]:
    """Return the names of the steps, each after those that it needs."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise _wrong(study, row, f"its steps form a circle: {' needs '.join((*path[path.index(name) :], name))}")
        if name in order:
            return
        for needed in placeholders(steps[name].model_dump()):
            if needed not in steps:
                known = ", ".join(one for one in steps if one != name) or "none"
                wanted = f"the step {name} needs ${{{needed}}}"
                raise _wrong(study, row, f"{wanted}, which is not one of its steps ({known})")
            visit(needed, (*path, name))
        order.append(name)

    for name in steps:
        visit(name, ())
    return order


def _check_columns(study: StudyConfig, rows: list[PlannedRow], runs: Mapping[str, PlannedRun]) -> None:
    for key, column in study.columns.items():
        if column.figure in OF_NETWORK:
            continue
        lacking = [row for row in rows if not steps_of(study, key, next(iter(row.runs.values())))]
        if len(lacking) == len(rows):
            raise UsvitError(
                f"The study {study.name}: no row has the run of the column {key} "
                f"({'steps ' + ', '.join(column.of) if column.of else 'name its step with of'})."
            )
        for row in rows:
            of = next(iter(row.runs.values()))
            for name in steps_of(study, key, of):
                try:
                    check_figure(column.figure, runs[of[name]].kind)
                except UsvitError as error:
                    raise UsvitError(f"The study {study.name}, column {key}: {error}") from error
        if lost := [row for row in lacking if key in row.printed]:
            raise UsvitError(
                f"The study {study.name}: the row '{lost[0].name}' has a printed figure of the column {key}, and no "
                f"run for it. Add the step, or remove the figure."
            )


def steps_of(study: StudyConfig, column: str, of_row: Mapping[str, str]) -> tuple[str, ...]:
    """Return the steps of a row that give the figure of a column, ``minus`` last; empty if the row lacks one."""
    wanted, minus = study.columns[column].of, study.columns[column].minus
    if wanted is None:
        return tuple(of_row) if len(of_row) == 1 else ()
    wanted = wanted if minus is None else (*wanted, minus)
    return wanted if all(name in of_row for name in wanted) else ()


def _refuse_equal_rows(study: StudyConfig, rows: list[PlannedRow]) -> None:
    seen: set[tuple[str | None, str]] = set()
    for row in rows:
        if (row.group, row.name) in seen:
            raise UsvitError(
                f"The study {study.name} contains the row {row.name} twice. Give the rows different names, a block of "
                "the grid a 'variant', or remove one."
            )
        seen.add((row.group, row.name))


def _refuse_settings_of_rows(study: StudyConfig, overrides: Mapping[str, Any]) -> None:
    for where, settings in [
        ("settings", study.settings),
        *((f"grid.{k}.settings", block.settings) for k, block in enumerate(study.grid)),
        *((f"rows.{k}.settings", row.settings) for k, row in enumerate(study.rows)),
        ("--set", overrides),
    ]:
        there = dict(flattened(nested(settings)))
        for key, instead in _OF_THE_ROWS.items():
            if there.get(key) is not None:
                raise UsvitError(f"{where} cannot set {key}: in a study, set it with {instead}.")


def _refuse_unknown_settings(study: StudyConfig, overrides: Mapping[str, Any]) -> None:
    """Refuse settings of the study or the command line that no kind of its runs has."""
    kinds = {step.run for step in study.steps.values()} | ({study.protocol} if study.grid else set())
    kinds |= {step.run for row in study.rows for step in row.steps.values() if step}
    schemas = [KINDS[kind].config for kind in kinds if kind is not None]
    for where, settings in (("settings", study.settings), ("--set", overrides), ("tiny", study.tiny)):
        kept = {key for schema in schemas for key in settings_of(nested(settings), schema)}
        for key, _ in flattened(nested(settings)):
            if key not in kept:
                known = list(dict.fromkeys(one for schema in schemas for one in config_keys(schema)))
                raise unknown("setting", key, known, f"It is set in {where} of the study {study.name}.")


def _wrong(study: StudyConfig, row: Row, what: str) -> UsvitError:
    return UsvitError(f"The study {study.name}, row '{row.name}': {what}.")
