"""From a step of a study to the complete, checked configuration of its run."""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from usvit.config import RunConfig, build, config_keys, load_recipe, merge, nested
from usvit.config.run import flattened
from usvit.errors import UsvitError
from usvit.experiments import default_out
from usvit.models import find_model
from usvit.plain_data import Settings
from usvit.upstream.api import transfer_settings
from usvit.upstream.config.bench import BenchConfig
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.sweep import choose_cells, read_recipe, settings_for, yielding
from usvit.upstream.config.test import TestConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.records.study import Kind
from usvit.upstream.studies.kinds import KINDS
from usvit.upstream.studies.specification import Step

_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")


def build_step(
    step: Step,
    *,
    model: str | None,
    row: Settings,
    below: Settings,
    above: tuple[Settings, ...],
    seed: int,
    max_cells: int | None = None,
) -> BaseModel:
    """Build and check the configuration of a step's run.

    Args:
        step: The step.
        model: The network of the row, for steps that name none and do not take it from their weights.
        row: Settings of the row, for kinds that train a named network and, the section ``model``, for ``bench``.
        below: Settings of the study, below those of the row and the step.
        above: Layers above those of the step, as ``prune`` returns them.
        seed: Seed of the run.
        max_cells: Largest number of cells of a transfer's sweep, of which the first are kept; None for all.

    Raises:
        UsvitError: An entry does not belong to this kind of run, or a name or setting is unknown or invalid.
    """
    kind = _kind(step)
    _refuse_foreign_entries(step, kind)
    of_run = kind in ("transfer", "test") and any(placeholders([step.weights, step.upstream]))
    if kind == "test" and of_run and step.model:
        raise UsvitError(f"The network of {step.weights} is that of its run: remove 'model'.")
    own = nested(step.settings)
    for_recipe = step.model or model
    model = None if of_run else for_recipe
    if kind == "bench":
        return _bench(step, model, merge(row.get("model", {}), own.pop("model", {})), own, above)
    if kind == "test":
        return _test(step, model, seed, below, own, above)
    given: Settings = {"seed": seed}
    for path, value in (
        ("model.name", model),
        ("model.weights", step.weights),
        ("data.dataset", step.dataset),
        ("source.name", "data" if kind == "transfer" and step.dataset and not step.source else step.source),
        ("how", step.how),
        ("upstream", None if step.upstream is None else list(step.upstream)),
    ):
        if value is not None:
            given = merge(given, nested({path: value}))
    row = row if KINDS[kind].trains else {}
    recipe = _of_recipe(step, kind, for_recipe, row)
    layers = (prune(below, KINDS[kind].config), row, own, given, *above)
    if "cells" in recipe:  # the study's own settings win over those of the cells
        whole = functools.reduce(merge, layers)
        cells = yielding(recipe["cells"], whole) if whole.get("how", recipe.get("how")) == "finetune" else {}
        recipe["cells"] = dict(itertools.islice(cells.items(), max_cells))
    config = build(KINDS[kind].config, recipe, *layers)
    if isinstance(config, RunConfig | PretrainConfig) and not isinstance(config, TransferConfig):
        find_model(config.model.name, config.model.vit.model_dump(exclude_none=True), config.model.frozen_features)
    return config


def prune(settings: Settings, schema: type[BaseModel]) -> Settings:
    """Keep the settings that a kind of run has: the settings of a study are for all of its runs."""
    known = settings_of(settings, schema)
    return nested({key: value for key, value in flattened(settings) if key in known})


def settings_of(settings: Settings, schema: type[BaseModel]) -> set[str]:
    """Return the dotted keys among the settings that a kind of run has."""
    keys = {*config_keys(schema)}
    return {key for key, _ in flattened(settings) if any(part in keys for part in _beginnings(key))}


def _beginnings(key: str) -> Iterator[str]:
    """Yield ``a``, ``a.b`` and ``a.b.c`` of the key ``a.b.c``."""
    return itertools.accumulate(key.split("."), "{}.{}".format)


def name_of(kind: Kind, config: BaseModel) -> str:
    """Return the beginning of a run's id: its default folder, or its kind, images, model, recipe and seed."""
    if isinstance(config, RunConfig):
        return default_out("train" if kind == "train" else "cv", config).name
    if isinstance(config, BenchConfig):
        return _plain("bench", config.name, config.protocol)
    settings: Any = config
    if isinstance(config, TestConfig):
        return _plain(kind, *(source.replace(":", "-") for source in config.sources), f"seed{config.seed}")
    images = settings.source.name if settings.source.name != "data" else settings.data.dataset
    model = settings.model.name if kind == "pretrain" else ""
    recipe = getattr(settings, "recipe", "none")
    how = getattr(settings, "how", "")
    return _plain(kind, how, Path(images).stem, model, "" if recipe == "none" else recipe, f"seed{settings.seed}")


def placeholders(value: Any) -> Iterator[str]:
    """Yield the names of the steps that a value refers to as ``${NAME}``."""
    if isinstance(value, str):
        yield from _PLACEHOLDER.findall(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from placeholders(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from placeholders(inner)


def replaced(value: Any, names: Mapping[str, str], form: str = "{}") -> Any:
    """Replace each ``${NAME}`` in a value by ``names[NAME]``, in the given form."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda found: form.format(names[found[1]]), value)
    if isinstance(value, Mapping):
        return {key: replaced(inner, names, form) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(inner, names, form) for inner in value]
    return value


def _kind(step: Step) -> Kind:
    assert step.run is not None, "the specification has checked it"
    return step.run


def _refuse_foreign_entries(step: Step, kind: Kind) -> None:
    known = ("run", "model", "seed", "settings", *KINDS[kind].entries)
    foreign = [name for name in Step.model_fields if name not in known and getattr(step, name) is not None]
    if foreign:
        raise UsvitError(f"A step of 'usvit {kind}' has no entry {foreign[0]}. Its entries: {', '.join(known)}.")


def _of_recipe(step: Step, kind: Kind, model: str | None, row: Settings) -> Settings:
    model = row.get("model", {}).get("name", model)
    if kind == "transfer":
        return {} if step.recipe is None else transfer_settings(step.recipe, step.source, model, step.cell)
    if kind == "pretrain":
        recipe = read_recipe(step.recipe or "fractals", "pretrain")
        settings = settings_for(recipe, model)
        if step.cell is None:
            return settings
        if step.cell == "all":
            raise UsvitError("A step is one run, and cell: all stands for several. Name a cell; rows make a table.")
        (cell,) = choose_cells(recipe, step.cell, model).values()
        return merge(settings, cell)
    return {} if step.recipe is None else load_recipe(step.recipe)


def _test(
    step: Step, model: str | None, seed: int, below: Settings, own: Settings, above: tuple[Settings, ...]
) -> TestConfig:
    """Return the configuration of a test of one classifier, or of several (``upstream``) on the same images."""
    several = step.upstream or (() if step.weights is None else (step.weights,))
    named = [one if model is None else f"{model}={one}" for one in several] or ([] if model is None else [model])
    if not named:
        raise UsvitError("A step of 'usvit test' needs a classifier: set 'weights', such as ${train}.")
    sources = [step.source] if step.source is not None else ["data"] if step.dataset is not None else []
    given: Settings = {"seed": seed, "classifiers": named, "sources": sources}
    if step.dataset is not None:
        given["data"] = {"dataset": step.dataset}
    return build(TestConfig, prune(below, TestConfig), own, given, *above)


def _bench(
    step: Step, model: str | None, of_model: Settings, own: Settings, above: tuple[Settings, ...]
) -> BenchConfig:
    if model is None:
        raise UsvitError("A step of 'usvit bench' needs a model: set it in the row or in the step.")
    of_model = {key: value for key, value in of_model.items() if key in ("vit", "image_size")}
    image_size = of_model.pop("image_size", None)
    layers = [{"name": model, "model": of_model}, {} if image_size is None else {"image_size": image_size}, own]
    if step.protocol is not None:
        layers.append({"protocol": step.protocol})
    settings: Settings = {}
    for layer in (*layers, *above):
        settings = merge(settings, layer)
    find_model(str(settings["name"]), settings["model"].get("vit"))
    return BenchConfig.model_validate(settings)


def _plain(*parts: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", "-".join(filter(None, parts)))
