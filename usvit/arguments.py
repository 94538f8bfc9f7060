"""Check the arguments of public functions against their annotations, so that a wrong type is named before any work."""

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

MOST_CHARACTERS = 60
"""Longest value that an error shows."""
_NAME_OF_MODULE = re.compile(r"\b(?:[A-Za-z_]\w*\.)+")

P = ParamSpec("P")
R = TypeVar("R")


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function check its arguments; its signature stays.

    A text is accepted for a path and becomes one, and a NumPy number for a number. A parameter is not checked if it has
    no annotation, or one that only a type checker can evaluate.

    Raises:
        TypeError: An argument has another type than the signature says; the text names the parameter.

    Example:
        >>> @checked_arguments
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> double(4)
        8
        >>> double("four")
        Traceback (most recent call last):
        TypeError: double(): number must be int, not 'four'.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        wrong: list[str] = []
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_checked(function, name, one, wrong) for one in value)
            elif kind is not inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = _checked(function, name, value, wrong)
        if wrong:
            raise TypeError(f"{function.__name__}(): {'; '.join(wrong)}.")
        return function(*bound.args, **bound.kwargs)

    return call


def _checked(function: Callable[..., Any], name: str, value: Any, wrong: list[str]) -> Any:
    """Return the value as its parameter takes it; add a sentence to ``wrong`` if it cannot."""
    from pydantic import ValidationError

    adapter = _adapter(function, name)
    if adapter is None:
        return value
    plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 else value
    try:
        found = adapter.validate_python(plain)
    except ValidationError:
        shown = repr(value) if isinstance(value, (str, int, float, list, tuple, dict)) else f"a {type(value).__name__}"
        shown = shown if len(shown) <= MOST_CHARACTERS else f"a {type(value).__name__}"
        annotation = inspect.formatannotation(inspect.signature(function).parameters[name].annotation)
        wrong.append(f"{name} must be {_NAME_OF_MODULE.sub('', annotation)}, not {shown}")
        return value
    return found if isinstance(found, (str, int, float, Path)) else value


@functools.cache
def _adapter(function: Callable[..., Any], name: str) -> Any:
    """Return pydantic's check of a parameter; None if its annotation cannot be evaluated at run time."""
    from pydantic import ConfigDict, InstanceOf, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    annotation = inspect.signature(function).parameters[name].annotation
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return None
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticSchemaGenerationError:
        return None
    except PydanticUserError:  # a dataclass or a record has a configuration of its own
        return TypeAdapter(InstanceOf.__class_getitem__(annotation))
