"""What can be trained and set: the recipes, and the settings of a configuration with their defaults and meanings."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from usvit.config.fields import meanings, section_in
from usvit.config.settings import COMMANDS, Stage, load_recipe, recipe_names
from usvit.files import read_text
from usvit.resources import configs_dir


class Setting(NamedTuple):
    """What is said about one setting."""

    default: str
    """The default as it is written on the command line; empty if nothing is set."""
    meaning: str


def list_settings(section: type[BaseModel], places: Mapping[str, str] | None = None) -> dict[str, Setting]:
    """Return the settings of a configuration by their dotted keys.

    Args:
        section: Class of the configuration.
        places: Key of a list or mapping of sections -> ``[]``, or the name of an entry, such as ``NAME``. None: only
            the settings in sections are shown, not the sections.

    Example:
        >>> from usvit.config import RunConfig
        >>> list_settings(RunConfig)["train.batch_size"].default
        '128'
    """
    return dict(_rows(section, None, "", places))


def list_recipes() -> dict[str, dict[str, str]]:
    """Return the shipped recipes: command, such as ``usvit cv`` -> name of a recipe -> the first line of its file.

    Example:
        >>> list_recipes()["usvit cv"]["demo"][:17]
        'The demonstration'
    """
    return {
        f"usvit {command}": {
            name: read_text(configs_dir() / stage / f"{name}.yaml").partition("\n")[0].lstrip("# ")
            for name in recipe_names(stage)
        }
        for stage, command in COMMANDS.items()
    }


def recipe_facts(name: str, stage: Stage) -> list[str]:
    """Return what the file of a recipe states of its images, network, image size, length and initial weights.

    Args:
        name: Name of a shipped recipe.
        stage: Its stage.

    Example:
        >>> recipe_facts("mae_finetune", "pretrain")
        ['imagenet', 'vit_b16', '224 px', '100 epochs', 'begins from mae']
    """
    recipe = load_recipe(name, stage)
    source, model, train = (recipe.get(section) or {} for section in ("source", "model", "train"))
    weights = str(model.get("weights") or "scratch").removeprefix("runs/")
    stated = {
        "{}": (source.get("name"), model.get("name")),
        "{} px": (model.get("image_size"),),
        "{:,} steps": (train.get("steps"),),
        "{:g} epochs": (train.get("epochs"),),
        "begins from {}": (None if weights == "scratch" else weights,),
    }
    return [text.format(value) for text, values in stated.items() for value in values if value is not None]


def _rows(
    section: type[BaseModel], values: BaseModel | None, prefix: str, places: Mapping[str, str] | None
) -> Iterator[tuple[str, Setting]]:
    texts = meanings(section)
    for name, field in section.model_fields.items():
        key, inner = prefix + name, section_in(field.annotation)
        default = getattr(values, name) if values else field.get_default(call_default_factory=True)
        shown = "required" if values is None and field.is_required() else _shown(default)
        text = texts.get(name) or ((inner and inner.__doc__) or "").partition("\n")[0]
        if name != "anyone" and (inner is None or places is not None):
            yield key, Setting(shown, _with_choices(text.replace("``", "`"), field.annotation))
        if inner is not None:
            place = (places or {}).get(key, "")
            dot = "." if place not in ("", "[]") else ""
            yield from _rows(inner, default if isinstance(default, inner) else None, f"{key}{dot}{place}.", places)


def _with_choices(text: str, annotation: Any) -> str:
    """Return a text with the choices of a ``Literal`` if it does not name all of them."""
    choices = [f"`{choice}`" for choice in _choices(annotation)]
    return text if all(choice in text for choice in choices) else f"{text} Choices: {', '.join(choices)}."


def _choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for inner in get_args(annotation):
            yield from _choices(inner)


def _shown(default: Any) -> str:
    return "" if isinstance(default, BaseModel) or default in ((), {}) else json.dumps(default).strip('"')
