"""From recipes and overrides to a validated configuration."""

import contextlib
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from usvit.config.run import RunConfig
from usvit.errors import UsvitError, shortened, unknown
from usvit.plain_yaml import parse_yaml
from usvit.resources import configs_dir

Stage = Literal["finetune", "pretrain", "transfer"]
_COMMANDS: dict[Stage, str] = {"finetune": "cv", "pretrain": "pretrain", "transfer": "transfer"}
Config = TypeVar("Config", bound=BaseModel)


def recipe_names(stage: Stage = "finetune") -> list[str]:
    """Names of the shipped recipes of one stage."""
    return sorted(path.stem for path in (configs_dir() / stage).glob("*.yaml"))


def load_recipe(name_or_file: str, stage: Stage = "finetune") -> dict[str, Any]:
    """A recipe's settings as nested dictionaries, not yet validated.

    Args:
        name_or_file: a name of ``recipe_names(stage)``, or the path of a YAML file.
        stage: which recipes a name means.

    Raises:
        UsvitError: there is no such recipe or file, or it is not a YAML mapping.
    """
    path = configs_dir() / stage / f"{name_or_file}.yaml"
    if Path(name_or_file).suffix in (".yaml", ".yml"):
        path = Path(name_or_file)
        if not path.is_file():
            raise UsvitError(
                f"There is no recipe file {path}. Give a name ({', '.join(recipe_names(stage))}) or a YAML file."
            )
    elif not path.is_file():
        hint = "A path to a .yaml file is accepted too."
        for other, command in _COMMANDS.items():
            if other != stage and name_or_file in recipe_names(other):
                hint = f"'{name_or_file}' is a recipe of 'usvit {command}'. {hint}"
        raise unknown("recipe", name_or_file, recipe_names(stage), hint)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsvitError(f"The recipe {path} cannot be read: {' '.join(str(error).split())}") from error
    settings = parse_yaml(text, f"The recipe {path}")
    if not isinstance(settings, dict):
        raise UsvitError(f"The recipe {path} must be a mapping of sections (data, model, train, ...), see docs.")
    return {"recipe": path.stem, **settings}


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """``["train.steps=10"]`` as nested dictionaries; values are read as YAML.

    Raises:
        UsvitError: a pair has no '=' or its value is not YAML.
    """
    overrides: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsvitError(f"--set takes key=value, such as --set train.steps=100; got '{pair}'.")
        try:
            value = parse_yaml(text, f"--set {key}")
        except UsvitError as error:
            raise UsvitError(f"--set {key}: '{text[:100]}' is not a YAML value. {error}") from error
        if isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string; people mean a number
            with contextlib.suppress(ValueError):
                value = float(value)
        overrides = merge(overrides, _nest(key.strip().split("."), value))
    return overrides


def _nest(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    return value


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid on it, section by section.

    Setting one of ``steps`` and ``epochs`` clears the other: they are two ways to say one thing. So are ``val`` and a
    ``val_share`` above 0.
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


def build_config(*layers: dict[str, Any]) -> RunConfig:
    """The configuration of a cross-validation or a hold-out: ``build`` of a ``RunConfig``."""
    return build(RunConfig, *layers)


def build(schema: type[Config], *layers: dict[str, Any]) -> Config:
    """Merge layers of settings, later ones winning, and validate the result.

    Args:
        schema: what is configured.
        layers: nested dictionaries: a recipe, the command line's options, ``--set``.

    Raises:
        UsvitError: a key is unknown (the nearest is named) or a value is out of range.
    """
    # A length has no default of its own: other settings of the training would lose the schema's.
    length = schema.model_fields["train"].default.model_dump(include={"steps", "epochs"}, exclude_none=True)
    settings: dict[str, Any] = {"train": length}
    for layer in layers:
        settings = merge(settings, layer)
    try:
        return schema.model_validate(settings)
    except ValidationError as error:
        raise _explain(error, schema) from error


def config_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    """Every key that can be set, dotted: ``train.batch_size``."""
    keys = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += config_keys(field.annotation, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys


def _explain(error: ValidationError, schema: type[BaseModel]) -> UsvitError:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return unknown("setting", key, config_keys(schema), "All settings: docs/reference/configuration.md.")
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] == "value_error" else f" (got {shortened(repr(problem['input']))})"
    subject = f"The setting {key}" if key else "This combination of settings"
    return UsvitError(f"{subject} cannot be used: {message}{given}.")
