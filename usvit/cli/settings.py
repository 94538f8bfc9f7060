"""Options of a command, derived from a section of settings: name, type, bounds, default and help text."""

import functools
import inspect
import re
from collections.abc import Callable, Collection
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import annotated_types
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from usvit.config.fields import meanings, option_of
from usvit.config.keywords import built
from usvit.config.sections import Section

S = TypeVar("S", bound=Section)


def takes_options(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command take the fields of its argument ``settings`` as options, in its place.

    The annotation of ``settings`` names the section. An option whose field is a tuple can be repeated, and a field that
    is true by default has an option such as ``--check/--no-check``. In the help text, the names of fields are shown as
    options.

    Args:
        without: Fields that are no options; they keep their default.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        section: type[Section] = signature.parameters["settings"].annotation
        fields = [name for name in section.model_fields if name not in without]
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            if name == "settings":
                parameters += [_parameter(section, field) for field in fields]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(command)
        def call(**values: Any) -> None:
            given = {name: values.pop(name) for name in fields}
            chosen = {name: value for name, value in given.items() if value is not None}
            command(**values, settings=built(section, chosen, option=lambda name: option_name(section, name)))

        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return decorate


def option_name(section: type[BaseModel], field: str) -> str:
    """Return the option of a field: ``--batch-size``."""
    return option_of(section, field).name or f"--{field.strip('_').replace('_', '-')}"


def _parameter(section: type[Section], name: str) -> inspect.Parameter:
    field = section.model_fields[name]
    default = ... if field.is_required() else field.get_default(call_default_factory=True)
    bounds: dict[str, Any] = {}
    for entry in field.metadata:
        if isinstance(entry, annotated_types.Ge):
            bounds["min"] = entry.ge
        elif isinstance(entry, annotated_types.Le):
            bounds["max"] = entry.le
    words = option_name(section, name)
    option = typer.Option(
        None if default == () else default,
        f"{words}/--no-{words.removeprefix('--')}" if default is True else words,
        help=_help(section, name),
        metavar=option_of(section, name).metavar or _metavar(field),
        **bounds,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=_plain(field.annotation))


def _help(section: type[Section], name: str) -> str:
    """Return the text of a field, with the options instead of the fields that it names."""

    def shown(found: re.Match[str]) -> str:
        return option_name(section, found[1]) if found[1] in section.model_fields else found[1]

    return re.sub("``(.*?)``", shown, meanings(section).get(name, ""))


def _metavar(field: FieldInfo) -> str | None:
    """Return the placeholder of a value; None: Typer makes one from the type."""
    kind = _without_none(field.annotation)
    return "|".join(get_args(kind)) if get_origin(kind) is Literal else None


def _plain(annotation: Any) -> Any:
    """Return the type as Typer reads it: a choice is a text, which the section checks."""
    kind = _without_none(annotation)
    if get_origin(kind) is tuple:
        return list[_plain(get_args(kind)[0])] | None  # type: ignore[misc]
    plain = str if get_origin(kind) is Literal else kind
    return plain if kind is annotation else plain | None


def _without_none(annotation: Any) -> Any:
    """Return the type of a value that may also be None."""
    kinds = get_args(annotation)
    return next(kind for kind in kinds if kind is not NoneType) if NoneType in kinds else annotation
