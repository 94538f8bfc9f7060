"""Answers of the authors for the checklists and the page, from a YAML file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from usvit.errors import UsvitError, unknown
from usvit.plain_yaml import read_yaml
from usvit.reports.checklists import CHECKLISTS


def _text(value: object) -> object:
    """Convert a number to text: numbers are valid as answers and as item numbers."""
    return str(value) if type(value) in (int, float) else value


def _text_keys(value: object) -> object:
    return {_text(key): one for key, one in value.items()} if isinstance(value, dict) else value


Text = Annotated[str, BeforeValidator(_text)]
_ByNumber = Annotated[dict[str, Text], BeforeValidator(_text_keys)]


class _AnswersFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    summary: str | None = None
    limits: list[Text] = []
    watts: Annotated[float, Field(gt=0)] | None = None
    watts_source: str | None = None
    claim_2024: _ByNumber = {}
    tripod_ai: _ByNumber = {}
    stard_ai: _ByNumber = {}


@dataclass(frozen=True)
class Answers:
    """Answers of the authors."""

    summary: str | None = None
    """A paragraph above the page's own summary."""
    limits: tuple[str, ...] = ()
    watts: float | None = None
    watts_source: str | None = None
    items: dict[str, dict[str, str]] = field(default_factory=dict)
    """Checklist -> item number -> answer."""


def read_answers(path: Path) -> Answers:
    """Read a file of answers; ``fill_checklists`` checks the item numbers.

    Raises:
        UsvitError: the file does not exist or is not a YAML mapping, a key is unknown (the nearest is named), or a
            value has the wrong type.
    """
    content = read_yaml(path, "file of answers")
    if content is None:
        return Answers()
    if not isinstance(content, dict):
        raise UsvitError(
            f"The answers {path} must be a mapping with keys such as {', '.join(_AnswersFile.model_fields)}."
        )
    if strange := [key for key in content if key not in _AnswersFile.model_fields]:
        raise unknown("key", str(strange[0]), list(_AnswersFile.model_fields), f"In {path}:")
    try:
        told = _AnswersFile.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise UsvitError(f"The answers {path} are not valid: {where}: {problem['msg']}.") from error
    return Answers(
        summary=told.summary,
        limits=tuple(told.limits),
        watts=told.watts,
        watts_source=told.watts_source,
        items={key: getattr(told, key) for key in CHECKLISTS if getattr(told, key)},
    )
