"""Options of a command, derived from a section of settings: name, type, bounds, default and help text."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
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

    The annotation of ``settings`` names the section.

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
            chosen = {name: values.pop(name) for name in fields}
            chosen = {name: value for name, value in chosen.items() if value is not None and value != []}
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
    kind = _plain(field.annotation)
    default = ... if field.is_required() else field.get_default(call_default_factory=True)
    if kind == list[str] | None:  # a repeated option
        default = None
    bounds: dict[str, Any] = {}
    for entry in field.metadata:
        if isinstance(entry, annotated_types.Ge):
            bounds["min"] = entry.ge
        elif isinstance(entry, annotated_types.Le):
            bounds["max"] = entry.le
    option = typer.Option(
        default,
        option_name(section, name),
        *option_of(section, name).aliases,
        help=meanings(section).get(name, "").replace("``", ""),
        metavar=option_of(section, name).metavar or _metavar(field),
        **bounds,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _metavar(field: FieldInfo) -> str | None:
    """Return the placeholder of a value; None: Typer makes one from the type."""
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    return None


def _plain(annotation: Any) -> Any:
    """Return the type as Typer reads it: a choice is a text, which the section checks, and several values a list."""
    if get_origin(annotation) is Literal:
        return str
    if get_origin(annotation) in (tuple, frozenset, dict, Mapping):
        return list[str] | None
    return annotation
