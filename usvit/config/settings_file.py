"""Files of settings that a user writes in YAML: reading one, and the text for a setting that cannot be used."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError, ValidationInfo

from usvit.config.fields import section_in
from usvit.config.sections import Section
from usvit.config.settings import cannot_be_used
from usvit.errors import UsvitError, unknown
from usvit.plain_yaml import read_yaml

S = TypeVar("S", bound=Section)


def _resolved(path: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder")
    return path if folder is None or path.is_absolute() else folder / path


PathOfFile = Annotated[Path, AfterValidator(_resolved)]
"""A path that is relative to the folder of the file of settings."""


def load_settings_file(
    path: Path | str, section: type[S], what: str, documentation: str, *, named: Collection[str] = ()
) -> S:
    """Read and check a YAML file that holds a section of settings.

    Args:
        path: The file. Its folder is the ``folder`` of the validation context, for relative paths.
        section: The section.
        what: Kind of the file in errors, such as ``configuration``.
        documentation: Sentence that says where all settings are described.
        named: Settings whose keys are names that the user chose, such as ``models``.

    Raises:
        UsvitError: The file cannot be read, is not YAML, or a setting is unknown or wrong; the text names it.
    """
    path = Path(path)
    content = read_yaml(path, what)
    if not isinstance(content, dict):
        some = ", ".join([*section.model_fields][:4])
        raise UsvitError(f"The {what} {path} must be a mapping of settings ({some}).")
    try:
        return section.model_validate(content, context={"folder": path.absolute().parent})
    except ValidationError as error:
        raise _explained(error, f"The {what} {path}", section, documentation, named) from error


def _explained(
    error: ValidationError, where: str, section: type[Section], documentation: str, named: Collection[str]
) -> UsvitError:
    problems = error.errors(include_url=False)
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place)
    if problem["type"] == "extra_forbidden":
        plain = [part for part in problem["loc"] if isinstance(part, str)]
        if place[0] in named and len(plain) > 2:
            del plain[1]
        found = unknown("setting", ".".join(plain), sorted(set(_keys(section))), documentation)
        return UsvitError(f"{where} cannot be used. {found} (At {key}.)")
    if problem["type"] == "missing":
        return UsvitError(f"{where} cannot be used: the setting {key} is missing. {documentation}")
    return cannot_be_used(f"{where}: the setting {key}" if key else where, problem)


def _keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        yield prefix + name
        if inner is not None:
            yield from _keys(inner, f"{prefix}{name}.")
