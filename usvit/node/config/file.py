"""The file of a node's configuration: reading it, and the text for a setting that cannot be used."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError

from usvit.config.fields import section_in
from usvit.config.settings import cannot_be_used
from usvit.errors import UsvitError, unknown
from usvit.node.config.settings import NodeConfig
from usvit.plain_yaml import read_yaml

_DOCUMENTATION = "All settings: 'usvit docs node-configuration'."


def load_node_config(path: Path | str) -> NodeConfig:
    """Read and check the configuration of a node.

    Raises:
        UsvitError: The file cannot be read, is not YAML, or a setting is unknown or wrong; the text names it.
    """
    path = Path(path)
    content = read_yaml(path, "configuration")
    if not isinstance(content, dict):
        raise UsvitError(f"The configuration {path} must be a mapping of settings (folder, receive, models, rules).")
    try:
        return NodeConfig.model_validate(content, context={"folder": path.absolute().parent})
    except ValidationError as error:
        raise _explained(error, path) from error


def _explained(error: ValidationError, path: Path) -> UsvitError:
    problems = error.errors(include_url=False)
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place)
    where = f"The configuration {path}"
    if problem["type"] == "extra_forbidden":
        plain = ".".join(part for part in problem["loc"] if isinstance(part, str))
        found = unknown("setting", _without_names(plain, place), sorted(set(_keys(NodeConfig))), _DOCUMENTATION)
        return UsvitError(f"{where} cannot be used. {found} (At {key}.)")
    if problem["type"] == "missing":
        return UsvitError(f"{where} cannot be used: the setting {key} is missing. {_DOCUMENTATION}")
    return cannot_be_used(f"{where}: the setting {key}" if key else where, problem)


def _without_names(plain: str, place: list[str]) -> str:
    """Leave out the name of a model or a peer, which the user chose."""
    parts = plain.split(".")
    return ".".join([parts[0], *parts[2:]]) if place[0] in ("models", "peers") and len(parts) > 2 else plain


def _keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        yield prefix + name
        if inner is not None:
            yield from _keys(inner, f"{prefix}{name}.")
