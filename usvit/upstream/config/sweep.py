"""Recipes of several trainings, whose settings differ by model, by cell of a sweep, and by data set.

A recipe of ``configs/pretrain`` and ``configs/transfer`` is a YAML mapping of settings and of these keys:

``sizes``
    Name of a model, or several with commas -> settings that override the recipe's for that model. ``{}`` means that
    the paper trains this model, too, with the recipe's settings.
``sweep``
    Axes; the cells are their product. An axis is ``name: {value: settings, ...}``, or a setting with a list of values,
    such as ``optim.lr: [0.003, 0.01]``, which are named ``lr0.003`` and ``lr0.01``.
``recommended``
    Name of a model -> the cell that the paper recommends for it.
``datasets``
    Name of a source of images -> settings that override the recipe's for it. A ``sweep`` in them replaces the recipe's
    axes of the same names (null removes an axis).
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from usvit.config.run import flattened
from usvit.config.settings import Stage, load_recipe, merge, nested
from usvit.errors import UsvitError, shortened, unknown
from usvit.plain_data import Settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""Valid names of cells, which become folder names."""
MAX_CELLS = 10_000
"""Maximum number of cells of a sweep. The largest shipped one has 1,920."""
_PARTS = ("sizes", "sweep", "recommended", "datasets")


@dataclass(frozen=True)
class Recipe:
    """Parsed recipe."""

    name: str
    settings: Settings
    """Nested settings that are not yet validated, with the recipe's name under ``recipe``."""
    sizes: Mapping[str, Settings] = field(default_factory=dict)
    """Model -> settings."""
    sweep: Mapping[str, Mapping[str, Settings]] = field(default_factory=dict)
    """Axis -> name of a value -> settings."""
    recommended: Mapping[str, str] = field(default_factory=dict)
    """Model -> cell."""
    datasets: Mapping[str, Settings] = field(default_factory=dict)
    """Source of images -> settings, including axes of a sweep."""

    @property
    def model(self) -> str | None:
        """Model named by the recipe, or None."""
        return self._named("model")

    @property
    def source(self) -> str | None:
        """Source of images named by the recipe, or None."""
        return self._named("source")

    def _named(self, section: str) -> str | None:
        name = _mapping(self.settings.get(section, {}), self.name, section).get("name")
        return None if name is None else str(name)


def read_recipe(name_or_file: str, stage: Stage = "pretrain") -> Recipe:
    """Read a recipe by its name or from a YAML file.

    Raises:
        UsvitError: If the recipe does not exist, is not YAML, or does not have the format described in this module.
    """
    settings = load_recipe(name_or_file, stage)
    name = str(settings["recipe"])
    parts = {part: _mapping(settings.pop(part, None) or {}, name, part) for part in _PARTS}
    recipe = Recipe(
        name=name,
        settings=settings,
        sizes=dict(_sizes(parts["sizes"], name)),
        sweep=_axes(parts["sweep"], name),
        recommended={str(model): str(cell) for model, cell in parts["recommended"].items()},
        datasets={str(key): _mapping(value or {}, name, f"datasets.{key}") for key, value in parts["datasets"].items()},
    )
    known = cells(recipe)
    for model, cell in recipe.recommended.items():
        if cell not in known:
            raise _wrong(name, f"recommended.{model}", f"'{cell}' is not a cell of its sweep")
    return recipe


def settings_for(recipe: Recipe, model: str | None = None) -> Settings:
    """Return the settings for one model; a model that is not in ``sizes`` gets the recipe's settings unchanged.

    Args:
        recipe: Result of ``read_recipe``.
        model: A name of ``usvit models list``; None for the recipe's own.
    """
    model = model or recipe.model
    if model is None:
        return recipe.settings
    return merge(merge(recipe.settings, recipe.sizes.get(model, {})), {"model": {"name": model}})


def size_note(recipe: Recipe, model: str | None = None) -> str | None:
    """Return a note for the user if the recipe's paper does not train this model, otherwise None."""
    model = model or recipe.model
    if not recipe.sizes or model is None or model in recipe.sizes:
        return None
    return (
        f"The recipe {recipe.name} has no settings for {model}, only for {', '.join(recipe.sizes)}. The model is "
        f"trained with the recipe's general settings."
    )


def cells(recipe: Recipe) -> dict[str, Settings]:
    """Map each cell's name to its settings, in the order of the file; empty if the recipe has no sweep.

    Raises:
        UsvitError: If two axes set the same key, a name is not a valid folder name, or there are too many cells.
    """
    if not recipe.sweep:
        return {}
    if (n_cells := math.prod(map(len, recipe.sweep.values()))) > MAX_CELLS:
        raise _wrong(recipe.name, "sweep", f"it has {n_cells:,} cells, and at most {MAX_CELLS:,} are supported")
    _refuse_keys_of_two_axes(recipe)
    found: dict[str, Settings] = {}
    for values in product(*(axis.items() for axis in recipe.sweep.values())):
        name = "-".join(value for value, _ in values)
        settings: Settings = {}
        for _, overrides in values:
            settings = merge(settings, overrides)
        if not _NAME.fullmatch(name) or name in found:
            raise _wrong(recipe.name, "sweep", f"'{name}' is not a valid name of a cell, or names two cells")
        found[name] = settings
    return found


def _refuse_keys_of_two_axes(recipe: Recipe) -> None:
    known: set[str] = set()
    for axis, values in recipe.sweep.items():
        keys = {key for overrides in values.values() for key, _ in flattened(overrides)}
        if twice := sorted(known & keys):
            raise _wrong(recipe.name, f"sweep.{axis}", f"{twice[0]} is set by another axis, too")
        known |= keys


def choose_cells(recipe: Recipe, choice: str, model: str | None = None) -> dict[str, Settings]:
    """Select the cells that ``--cell`` names.

    Args:
        recipe: Result of ``read_recipe``.
        choice: ``all``, ``recommended`` (by the paper for this model), or the name of a cell.
        model: A model name; None for the recipe's own.

    Raises:
        UsvitError: If the recipe has no sweep or no such cell, or the paper recommends no cell for this model.
    """
    found, model = cells(recipe), model or recipe.model
    if not found:
        raise UsvitError(f"The recipe {recipe.name} has no sweep: remove --cell.")
    if choice == "all":
        return found
    if choice == "recommended":
        if model is None or model not in recipe.recommended:
            known = ", ".join(recipe.recommended) or "none"
            raise UsvitError(
                f"The paper of the recipe {recipe.name} recommends no cell for the model {model} (known: {known}). "
                "Choose a cell; --list-cells shows them."
            )
        choice = recipe.recommended[model]
    if choice not in found:
        hint = f"The recipe {recipe.name} has {len(found)} cells; --list-cells shows them."
        raise unknown("cell", choice, [*found, "all", "recommended"], hint)
    return {choice: found[choice]}


def yielding(sweep_cells: Mapping[str, Settings], given: Settings) -> dict[str, Settings]:
    """Remove the user's own settings from each cell, and keep the first of cells that become equal.

    Args:
        sweep_cells: Result of ``cells`` or ``choose_cells``.
        given: Nested settings of the command line.
    """
    kept: dict[str, Settings] = {}
    for name, settings in sweep_cells.items():
        left = _without(settings, given)
        if left not in kept.values():
            kept[name] = left
    return kept


def for_dataset(recipe: Recipe, dataset: str) -> Recipe:
    """Apply the recipe's settings for one data set; return the recipe unchanged if it has none.

    Args:
        recipe: Result of ``read_recipe``.
        dataset: A name of ``usvit pretrain --list-sources``.
    """
    own = dict(recipe.datasets.get(dataset, {}))
    if not own:
        return recipe
    given = _mapping(own.pop("sweep", None) or {}, recipe.name, f"datasets.{dataset}.sweep")
    axes = {**recipe.sweep, **_axes({key: axis for key, axis in given.items() if axis is not None}, recipe.name)}
    for key in [key for key, axis in given.items() if axis is None]:
        axes.pop(key, None)
    return replace(recipe, settings=merge(recipe.settings, own), sweep=axes)


def _sizes(given: Settings, recipe: str) -> Iterator[tuple[str, Settings]]:
    for names, settings in given.items():
        for name in str(names).split(","):
            yield name.strip(), _mapping(settings or {}, recipe, f"sizes.{names}")


def _axes(given: Settings, recipe: str) -> dict[str, dict[str, Settings]]:
    axes: dict[str, dict[str, Settings]] = {}
    for key, axis in given.items():
        if isinstance(axis, list):
            label = str(key).rsplit(".", 1)[-1]
            named = {f"{value:g}" if isinstance(value, float) else str(value): value for value in axis}
            axes[key] = {f"{label}{name}": nested({str(key): value}) for name, value in named.items()}
        else:
            values = _mapping(axis, recipe, f"sweep.{key}")
            axes[key] = {str(name): _mapping(value or {}, recipe, f"sweep.{key}") for name, value in values.items()}
        if not axes[key]:
            raise _wrong(recipe, f"sweep.{key}", "the axis has no values")
    return axes


def _without(settings: Settings, given: Settings) -> Settings:
    if {"steps", "epochs"} & set(given):  # alternative units of the same length
        given = {"steps": None, "epochs": None, **given}
    left = {}
    for key, value in settings.items():
        if key not in given:
            left[key] = value
        elif isinstance(value, dict) and isinstance(given[key], dict) and (rest := _without(value, given[key])):
            left[key] = rest
    return left


def _mapping(value: Any, recipe: str, where: str) -> Settings:
    if not isinstance(value, dict):
        raise _wrong(recipe, where, f"it must be a mapping, not {shortened(repr(value))}")
    return value


def _wrong(recipe: str, where: str, what: str) -> UsvitError:
    return UsvitError(f"The recipe {recipe} cannot be used: {where}: {what}. See 'usvit docs recipes'.")
