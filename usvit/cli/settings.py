"""Options of a command, derived from a section of settings: name, type, bounds, default and help text."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import annotated_types
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from usvit.cli.parameters import with_parameters
from usvit.config.fields import meanings, option_of, panel_of
from usvit.config.keywords import built, input_type
from usvit.config.sections import Section

S = TypeVar("S", bound=Section)


def takes_options(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command take the fields of each argument that is a section of settings as options, in its place.

    An option whose field is a tuple or a mapping can be repeated, unless the validator of the field reads a text. A
    field that is true by default has an option such as ``--check/--no-check``. In the help text, the names of fields
    are shown as options.

    Args:
        without: Fields that are no options; they keep their default.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        fields: dict[str, list[str]] = {}
        parameters: list[inspect.Parameter] = []
        signature = inspect.signature(command)
        for name, parameter in signature.parameters.items():
            section = parameter.annotation
            if isinstance(section, type) and issubclass(section, Section):
                fields[name] = [field for field in section.model_fields if field not in without]
                parameters += [_parameter(section, field) for field in fields[name]]
            else:
                parameters.append(parameter)

        @functools.wraps(command)
        def call(**values: Any) -> None:
            for name, names in fields.items():
                section = signature.parameters[name].annotation
                values[name] = built(
                    section,
                    {field: value for field in names if (value := values.pop(field)) not in (None, [])},
                    option=functools.partial(option_name, section),
                )
            command(**values)

        return with_parameters(call, parameters)

    return decorate


def takes_config(config: type[Section], *keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command take settings of a configuration as options, and ``--set`` for all others.

    The command receives those that were given as its argument ``overrides``: nested dictionaries, in which ``--set``
    takes precedence. The values are checked when the configuration is built.

    Args:
        config: Class of the configuration.
        keys: Dotted keys of the settings: ``split.repeats``.
    """
    fields = {key: _section_of(config, key) for key in keys}
    options = {option_name(*fields[key]).strip("-").replace("-", "_"): key for key in keys}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name == "overrides":
                parameters += [
                    _parameter(*fields[key], optional=True).replace(name=option) for option, key in options.items()
                ]
                parameters.append(_keyword("set_", list[str] | None, SET))
            else:
                parameters.append(parameter)

        @functools.wraps(command)
        def call(**values: Any) -> None:
            from usvit.config import merge, nested, parse_overrides
            from usvit.resources import said_once

            given = {
                key: value for option, key in options.items() if (value := values.pop(option)) not in (None, False)
            }
            with said_once():
                overrides = merge(nested(given), parse_overrides(values.pop("set_") or []))
            command(**values, overrides=overrides)

        return with_parameters(call, parameters)

    return decorate


SET = typer.Option(
    None, "--set", help="Any other setting, such as train.steps=100. Can be repeated.", metavar="KEY=VALUE"
)


def _section_of(config: type[Section], key: str) -> tuple[type[Section], str]:
    *sections, field = key.split(".")
    for name in sections:
        inner = config.model_fields[name].annotation
        if not (isinstance(inner, type) and issubclass(inner, Section)):
            raise TypeError(f"{name} of {key} is not a section")
        config = inner
    return config, field


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def option_name(section: type[BaseModel], field: str) -> str:
    """Return the option of a field: ``--batch-size``."""
    return option_of(section, field).name or f"--{field.strip('_').replace('_', '-')}"


def _parameter(section: type[Section], name: str, *, optional: bool = False) -> inspect.Parameter:
    """Return the parameter of a field; ``optional``: it is None, or false, if it is not given."""
    field = section.model_fields[name]
    kind, text = _plain(field.annotation), _help(section, name)
    if any(get_origin(one) is list for one in get_args(kind)) and input_type(field) != field.annotation:
        # The validator of the field reads texts, such as "10,20".
        listed = str in get_args(input_type(field)) and not option_of(section, name).repeated
        kind = str | None if listed else list[str] | None
    default = ... if field.is_required() else field.get_default(call_default_factory=True)
    if optional and kind is not bool:
        text += "" if default is None or "(default" in text else f" (default: {default}, or the recipe's)"
        kind, default = kind | None, None
    elif default is not ... and not isinstance(default, (str, int, float, Path)):  # nothing that a user could type
        default = None
    bounds: dict[str, Any] = {}
    for entry in field.metadata:
        if isinstance(entry, annotated_types.Ge):
            bounds["min"] = entry.ge
        elif isinstance(entry, annotated_types.Le):
            bounds["max"] = entry.le
    words = option_name(section, name)
    option = typer.Option(
        default,
        f"{words}/--no-{words.removeprefix('--')}" if default is True else words,
        *option_of(section, name).aliases,
        help=text,
        metavar=option_of(section, name).metavar or _metavar(field),
        rich_help_panel=panel_of(section, name),
        hidden=option_of(section, name).rare,
        **bounds,
    )
    return _keyword(name, kind, option)


def _help(section: type[Section], name: str) -> str:
    """Return the text of a field, with the options instead of the fields that it names."""

    def shown(found: re.Match[str]) -> str:
        return option_name(section, found[1]) if found[1] in section.model_fields else found[1]

    text = re.sub("``(.*?)``", shown, meanings(section).get(name, ""))
    return re.sub(r"[.;] null: ([^.;]+)\.?$", r". (default: \1)", text)


def _metavar(field: FieldInfo) -> str | None:
    """Return the placeholder of a value; None: Typer makes one from the type."""
    kind = _without_none(field.annotation)
    return "|".join(get_args(kind)) if get_origin(kind) is Literal else None


def _plain(annotation: Any) -> Any:
    """Return the type as Typer reads it: a choice is a text, which the section checks, and several values a list."""
    kind = _without_none(annotation)
    if get_origin(kind) in (tuple, frozenset):
        return list[_plain(get_args(kind)[0])] | None  # type: ignore[misc]
    if get_origin(kind) in (dict, Mapping):
        return list[str] | None
    plain = str if get_origin(kind) is Literal else kind
    return plain if kind is annotation else plain | None


def _without_none(annotation: Any) -> Any:
    """Return the type of a value that may also be None."""
    kinds = get_args(annotation)
    return next(kind for kind in kinds if kind is not NoneType) if NoneType in kinds else annotation
