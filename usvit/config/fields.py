"""The fields of a section of settings, as the command line, Python's keywords and the reference pages show them.

The text below a field in its class is the only description of the setting; ``meanings`` reads it from the source.
"""

import ast
import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Option:
    """How a setting appears on the command line, where its name and its type do not say it.

    Example:
        >>> from typing import Annotated
        >>> from usvit.config.sections import Section
        >>> class Settings(Section):
        ...     folds: Annotated[str, Option("--fold", metavar="K")] = "all"
    """

    name: str | None = None
    """Name of the option; None: that of the field, ``--batch-size`` for ``batch_size``."""
    metavar: str | None = None
    """Placeholder of the value in the help text."""
    aliases: tuple[str, ...] = ()
    """Further names of the option."""
    repeated: bool = False
    """The option can be repeated, although the field of several values also takes one text."""
    rare: bool = False
    """The option is seldom needed: ``--help`` only counts it, and ``--help-all`` shows it."""


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


TextOrPath = Annotated[str | None, BeforeValidator(_as_text, json_schema_input_type=str | Path | None)]
"""A text or None, for which Python also takes a path."""


def meanings(section: type[BaseModel]) -> Mapping[str, str]:
    """Return the text below each field of a section and of its base classes, on one line.

    Example:
        >>> from usvit.config.sections import TrainConfig
        >>> "micro_batch" in meanings(TrainConfig)
        True
    """
    texts: dict[str, str] = {}
    for base in reversed(section.__mro__):
        module = inspect.getmodule(base)
        if base is not BaseModel and issubclass(base, BaseModel) and module is not None:
            texts |= _texts_of_module(module).get(base.__qualname__, {})
    return texts


@functools.cache
def _texts_of_module(module: ModuleType) -> dict[str, dict[str, str]]:
    """Class -> field -> the text below it in the source; empty for classes of an interactive session."""
    found: dict[str, dict[str, str]] = {}
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return found
    for definition in ast.parse(source).body:
        if isinstance(definition, ast.ClassDef):
            texts = found.setdefault(definition.name, {})
            for field, below in pairwise(definition.body):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(below, ast.Expr)
                    and isinstance(below.value, ast.Constant)
                ):
                    texts[field.target.id] = " ".join(str(below.value.value).split())
    return found


def section_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section that a setting is or holds, such as each element of a list; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, dict, Union, UnionType, Annotated):
        return next(filter(None, map(section_in, get_args(annotation))), None)
    return None


def option_of(section: type[BaseModel], field: str) -> Option:
    """Return the ``Option`` in the annotation of a field, or one without entries."""
    metadata: list[Any] = section.model_fields[field].metadata
    return next((entry for entry in metadata if isinstance(entry, Option)), Option())


def panel_of(section: type[BaseModel], field: str) -> str | None:
    """Return the group of the option of a field: the ``panel`` of the class that declares it."""
    home = next(base for base in section.__mro__ if field in inspect.get_annotations(base))
    panel: str | None = vars(home).get("panel")
    return panel


def part(settings: BaseModel, section: type[S]) -> S:
    """Return the fields of a section from settings that also have others."""
    return section(**{name: getattr(settings, name) for name in section.model_fields})


def given_fields(settings: BaseModel) -> set[str]:
    """Return the fields whose value is not the default."""
    return {
        name
        for name, field in type(settings).model_fields.items()
        if field.is_required() or getattr(settings, name) != field.get_default(call_default_factory=True)
    }
