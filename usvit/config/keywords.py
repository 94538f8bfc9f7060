"""Functions of Python whose keywords are the fields of a section of settings."""

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BeforeValidator, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from usvit.arguments import MOST_CHARACTERS, checked_arguments
from usvit.config.fields import meanings
from usvit.config.sections import Section
from usvit.errors import UsvitError, unknown

R = TypeVar("R")
S = TypeVar("S", bound=Section)


def takes_settings(function: Callable[..., R]) -> Callable[..., R]:
    """Make a function take the fields of its argument ``settings`` as keywords.

    The annotation of ``settings`` names the section. The function can be called with ``settings``, with keywords, or
    with both, where keywords take precedence. Its signature and its docstring list the fields, with their defaults and
    meanings, which stand in the section alone. The other arguments are checked as by ``checked_arguments``.

    Raises:
        TypeError: There is no such keyword, or a value has another type.
        UsvitError: A value is out of range, or unknown.

    Example:
        >>> class Settings(Section):
        ...     steps: int = 10
        ...     '''Number of steps.'''
        >>> @takes_settings
        ... def train(model: str, settings: Settings) -> str:
        ...     return f"{model}: {settings.steps} steps"
        >>> train("vit_b32", steps=4)
        'vit_b32: 4 steps'
        >>> str(inspect.signature(train))
        '(model: str, *, steps: int = 10) -> str'
    """
    signature = inspect.signature(function)
    section: type[Section] = signature.parameters["settings"].annotation
    checked = checked_arguments(function)

    @functools.wraps(function)
    def call(*args: Any, settings: Section | None = None, **keywords: Any) -> R:
        fields = {name: keywords.pop(name) for name in list(keywords) if name in section.model_fields}
        base = {} if settings is None else dict(settings)
        try:
            bound = signature.bind(*args, settings=None, **keywords)
        except TypeError as error:
            raise TypeError(f"{function.__name__}(): {error}") from None
        if settings is None or fields:
            kind = section if settings is None else type(settings)
            settings = built(kind, base | fields, where=f"{function.__name__}(): ", option=str)
        bound.arguments["settings"] = settings
        return checked(*bound.args, **bound.kwargs)

    call.__signature__ = _with_fields(signature, section)  # type: ignore[attr-defined]
    call.__doc__ = _documented(function.__doc__ or "", section)
    return call


def built(section: type[S], values: Mapping[str, Any], *, where: str = "", option: Callable[[str], str]) -> S:
    """Return a section with these values.

    Args:
        section: Class of the settings.
        values: Values of some of its fields.
        where: Beginning of the error text of a wrong type.
        option: Function that returns the name of a field in an error.

    Raises:
        TypeError: A value has another type.
        UsvitError: A value is out of range, or unknown.
    """
    for name, value in values.items():
        kind = input_type(section.model_fields[name])
        if not _is_of(kind, value):
            raise TypeError(f"{where}{option(name)} must be {_type_text(kind)}, not {_shown(value)}.")
    try:
        return section(**values)
    except ValidationError as error:
        problem = error.errors()[0]
    if not problem["loc"]:
        raise UsvitError(_sentence(problem["msg"]))
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        raise TypeError(f"{where}{option(name)} is required.")
    if problem["type"] == "literal_error":
        choices = _choices(section.model_fields[name].annotation)
        raise unknown(option(name).strip("-"), str(problem["input"]), choices)
    if problem["type"] == "value_error":
        raise UsvitError(f"{option(name)}: {_sentence(problem['msg'])}")
    rule = _sentence(problem["msg"]).replace("Input ", "it ", 1)
    raise UsvitError(f"{option(name)} is {_shown(values[name])}, but {rule}")


def input_type(field: FieldInfo) -> Any:
    """Return the type of the values that a field accepts, of which its validator makes one of its own type."""
    for entry in field.metadata:
        if isinstance(entry, BeforeValidator) and entry.json_schema_input_type is not PydanticUndefined:
            return entry.json_schema_input_type
    return field.annotation


def _is_of(kind: Any, value: Any) -> bool:
    """Return whether a value has a type; a text outside of a choice has the type of the choice."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        return all(one["type"] == "literal_error" and isinstance(one["input"], str) for one in error.errors())
    return True


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the texts of a ``Literal``, also inside of a container or beside None."""
    inner = get_args(annotation)
    return inner if get_origin(annotation) is Literal else tuple(name for one in inner for name in _choices(one))


def _type_text(annotation: Any) -> str:
    """Return a type as words: ``Path | None``."""
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+", "", inspect.formatannotation(annotation))


def _shown(value: Any) -> str:
    """Return a value for an error text, or the name of its type if it is long or no plain value."""
    shown = repr(value) if isinstance(value, (str, int, float, list, tuple, dict)) else ""
    return shown if 0 < len(shown) <= MOST_CHARACTERS else f"a {type(value).__name__}"


def _sentence(message: str) -> str:
    return message.removeprefix("Value error, ").rstrip(".") + "."


def _with_fields(signature: inspect.Signature, section: type[Section]) -> inspect.Signature:
    parameters = [one for name, one in signature.parameters.items() if name != "settings"]
    first = next((n for n, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY), len(parameters))
    fields = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True),
            annotation=input_type(field),
        )
        for name, field in section.model_fields.items()
    ]
    return signature.replace(parameters=[*parameters[:first], *fields, *parameters[first:]])


def _documented(text: str, section: type[Section]) -> str:
    """Replace the line ``settings: ...`` of the arguments by one entry for each field."""
    texts = meanings(section)
    lines: list[str] = []
    for line in text.split("\n"):
        if line.strip().startswith("settings:"):
            indent = line[: len(line) - len(line.lstrip())]
            for name in section.model_fields:
                lines += textwrap.wrap(
                    f"{name}: {texts.get(name, '')}", 120, initial_indent=indent, subsequent_indent=f"{indent}    "
                )
        else:
            lines.append(line)
    return "\n".join(lines)
