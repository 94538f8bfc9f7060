"""Build a validated configuration from recipes and overrides."""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from usvit.config.run import RunConfig
from usvit.errors import UsvitError, shortened, unknown
from usvit.plain_data import Settings
from usvit.plain_yaml import parse_yaml, yaml_text
from usvit.resources import configs_dir

Stage = Literal["finetune", "pretrain", "transfer"]
COMMANDS: dict[Stage, str] = {"finetune": "cv", "pretrain": "pretrain", "transfer": "transfer"}
"""Stage -> command whose recipes it has."""
Config = TypeVar("Config", bound=BaseModel)
_ALL_SETTINGS = "All settings: 'usvit docs configuration'."


def recipe_names(stage: Stage = "finetune") -> list[str]:
    """Return the names of the shipped recipes of one stage, sorted."""
    return sorted(path.stem for path in (configs_dir() / stage).glob("*.yaml"))


def load_recipe(name_or_file: str, stage: Stage = "finetune") -> Settings:
    """Read a recipe's settings as nested dictionaries, without validating them.

    Args:
        name_or_file: Name in ``recipe_names(stage)``, or path of a YAML file.
        stage: Stage whose recipes a name refers to.

    Raises:
        UsvitError: If there is no such recipe or file, or if it is not a YAML mapping.
    """
    path = configs_dir() / stage / f"{name_or_file}.yaml"
    if Path(name_or_file).suffix in (".yaml", ".yml"):
        path = Path(name_or_file)
        if not path.exists():
            raise UsvitError(
                f"There is no recipe file {path}. Give a name ({', '.join(recipe_names(stage))}) or a YAML file."
            )
    elif not path.exists():
        hint = "A path to a .yaml file is accepted too."
        for other, command in COMMANDS.items():
            if other != stage and name_or_file in recipe_names(other):
                hint = f"'{name_or_file}' is a recipe of 'usvit {command}'. {hint}"
        raise unknown("recipe", name_or_file, recipe_names(stage), hint)
    settings = _copied(_parsed(yaml_text(path, "recipe"), f"The recipe {path}"))
    if not isinstance(settings, dict):
        raise UsvitError(f"The recipe {path} must be a mapping of sections (data, model, train, ...), see docs.")
    return {"recipe": path.stem, **settings}


@functools.lru_cache(maxsize=64)
def _parsed(text: str, what: str) -> Any:
    """Parse YAML; a study reads the same recipe for each of its runs, and parsing takes most of that time."""
    return parse_yaml(text, what)


def _copied(value: Any) -> Any:
    """Copy nested mappings and lists; ``copy.deepcopy`` takes several times as long."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else value


def parse_overrides(pairs: list[str]) -> Settings:
    """Parse ``["train.steps=10"]`` into nested dictionaries; values are read as YAML.

    Raises:
        UsvitError: If a pair has no '=', or if its value is not YAML.
    """
    overrides: Settings = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsvitError(f"--set takes key=value, such as --set train.steps=100; got '{pair}'.")
        try:
            value = parse_yaml(text, f"--set {key}")
        except UsvitError as error:
            raise UsvitError(f"--set {key}: '{text[:100]}' is not a YAML value. {error}") from error
        if isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string, but a number is meant
            with contextlib.suppress(ValueError):
                value = float(value)
        overrides = merge(overrides, nested({key.strip(): value}))
    return overrides


def nested(settings: Mapping[str, Any]) -> Settings:
    """Turn settings by dotted key into nested dictionaries: ``train.steps`` -> ``{"train": {"steps": ...}}``.

    Double underscores mean dots, so that settings can be keyword arguments: ``train__steps``.
    """
    whole: Settings = {}
    for key, value in settings.items():
        for part in reversed(key.replace("__", ".").split(".")):
            value = {part: value}
        whole = merge(whole, value)
    return whole


def merge(base: Settings, over: Settings) -> Settings:
    """Return ``base`` updated with ``over``, section by section.

    Setting one of ``steps`` and ``epochs`` removes the other, since both give the length of the training. The same
    applies to ``val`` and a ``val_share`` above 0.
    """
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    for one, two in (("steps", "epochs"), ("val", "val_share")):
        for given, other in ((one, two), (two, one)):
            if over.get(given) not in (None, 0) and other not in over:
                merged.pop(other, None)
    return merged


def build_config(*layers: Settings) -> RunConfig:
    """Build the configuration of a cross-validation or a hold-out; see ``build``."""
    return build(RunConfig, *layers)


def build(schema: type[Config], *layers: Settings) -> Config:
    """Merge layers of settings and validate the result; later layers take precedence.

    Args:
        schema: Model of the configuration.
        layers: Nested dictionaries: a recipe, the command line's options, ``--set``.

    Raises:
        UsvitError: If a key is unknown (the message names the nearest one), or if a value is out of range.
    """
    # Section `train` has no default length of its own. Without this layer any other setting of `train` would replace
    # the schema's default section, and the length with it.
    settings: Settings = {}
    if "train" in schema.model_fields:
        length = schema.model_fields["train"].default.model_dump(include={"steps", "epochs"}, exclude_none=True)
        settings = {"train": length}
    for layer in layers:
        settings = merge(settings, layer)
    try:
        return schema.model_validate(settings)
    except ValidationError as error:
        raise _explain(error, schema) from error


def refuse_unknown_settings(schema: type[BaseModel], *layers: Mapping[str, Any]) -> None:
    """Check only the keys of some layers, which takes no time, before anything is imported or looked up for a recipe.

    Raises:
        UsvitError: If a key is unknown; the message names the nearest one.
    """
    for layer in layers:
        for key, value in layer.items():
            field = schema.model_fields.get(key)
            if field is None:
                raise unknown("setting", key, config_keys(schema), _ALL_SETTINGS)
            inner = field.annotation
            if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, BaseModel):
                for name in value:
                    if name not in inner.model_fields and "." not in str(name):
                        raise unknown("setting", f"{key}.{name}", config_keys(schema), _ALL_SETTINGS)
                refuse_unknown_settings(inner, {name: one for name, one in value.items() if "." not in str(name)})


def config_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    """List every key that can be set, in dotted form such as ``train.batch_size``."""
    return [*_keys(section, prefix)]


@functools.cache
def _keys(section: type[BaseModel], prefix: str) -> tuple[str, ...]:
    """List the keys once; the plan of a study asks for them several times for each of its runs."""
    keys: list[str] = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += _keys(field.annotation, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return tuple(keys)


def _explain(error: ValidationError, schema: type[BaseModel]) -> UsvitError:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        section, dot, inner = str(problem["loc"][-1]).partition(".")
        if dot:
            return UsvitError(f"The key '{key}' contains a dot: write it as a section, {section}: {{{inner}: ...}}.")
        return unknown("setting", key, config_keys(schema), _ALL_SETTINGS)
    return cannot_be_used(f"The setting {key}" if key else "This combination of settings", problem)


def cannot_be_used(subject: str, problem: Mapping[str, Any]) -> UsvitError:
    """Describe one entry of ``ValidationError.errors()`` as an error whose sentence begins with ``subject``."""
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] == "value_error" else f" (got {shortened(repr(problem['input']))})"
    return UsvitError(f"{subject} cannot be used: {message}{given}.")
