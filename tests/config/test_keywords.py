"""Functions whose keywords are the fields of a section of settings."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BeforeValidator, Field, model_validator

from usvit.config.keywords import takes_settings
from usvit.config.sections import Section
from usvit.errors import UsvitError


def joined(parts):
    return parts if isinstance(parts, str) else ",".join(map(str, parts))


class Settings(Section):
    """Settings of the tests."""

    steps: Annotated[int, Field(ge=1, le=100)] = 10
    """Number of steps."""
    parts: Annotated[str, BeforeValidator(joined, json_schema_input_type=str | Sequence[int])] = "all"
    """Parts: ``all``, or numbers."""
    mode: Literal["fast", "exact"] = "fast"
    """How it works, with a text that is so long that the documentation of a function continues it on another line."""
    products: frozenset[Literal["sr", "sc"]] = frozenset()
    """Files."""
    rate: float = 0.5
    """Rate."""

    @model_validator(mode="after")
    def _fits(self):
        if self.mode == "exact" and self.steps > 50:
            raise ValueError("mode exact takes at most 50 steps")
        return self


class MoreSettings(Settings):
    """Settings with a required field, and with another text for a field of the base class."""

    path: Path
    """A file."""
    steps: int = 3
    """Steps of the subclass."""


@takes_settings
def work(model: str, settings: Settings, *, label: str = "none") -> Settings:
    """Do the work.

    Args:
        model: The model.
        settings: See ``Settings``.
        label: A label.
    """
    return settings


@takes_settings
def read(settings: MoreSettings) -> MoreSettings:
    return settings


def test_keywords_become_the_settings():
    assert work("m", steps=4, parts=[0, 2]) == Settings(steps=4, parts="0,2")
    assert work("m") == Settings()
    assert work("m", settings=Settings(steps=7)).steps == 7


def test_keywords_take_precedence_over_the_settings():
    assert work("m", settings=Settings(steps=7, mode="exact"), steps=8) == Settings(steps=8, mode="exact")


def test_settings_of_a_subclass_are_kept_as_they_are(tmp_path):
    settings = MoreSettings(path=tmp_path)
    assert work("m", settings=settings) is settings
    assert work("m", settings=settings, steps=5) == MoreSettings(path=tmp_path, steps=5)


def test_the_signature_shows_every_field_with_its_default():
    assert str(inspect.signature(work)).startswith("(model: str, *, steps: int = 10, parts: ")
    assert inspect.signature(work).parameters["parts"].annotation == str | Sequence[int]
    assert list(inspect.signature(work).parameters)[-1] == "label"
    assert inspect.signature(read).parameters["path"].default is inspect.Parameter.empty


def test_the_docstring_describes_every_field():
    lines = work.__doc__.split("\n")
    assert "        steps: Number of steps." in lines and "        label: A label." in lines
    assert "            line." in lines
    assert max(map(len, lines)) <= 120 and "settings:" not in work.__doc__


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"steps": "many"}, r"work\(\): steps must be int, not 'many'\."),
        ({"parts": 1.5}, r"work\(\): parts must be str \| Sequence\[int\], not 1\.5\."),
        ({"mode": 3}, r"work\(\): mode must be Literal\['fast', 'exact'\], not 3\."),
        ({"products": object()}, r"work\(\): products must be frozenset\[.*\], not a object\."),
        ({"rate": {"a": "x" * 99}}, r"work\(\): rate must be float, not a dict\."),
        ({"step": 4}, r"work\(\): got an unexpected keyword argument 'step'"),
        ({"label": 4}, r"work\(\): label must be str, not 4\."),
    ],
)
def test_a_wrong_type_or_name_is_a_type_error(keywords, text):
    with pytest.raises(TypeError, match=f"^{text}$"):
        work("m", **keywords)


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"steps": 0}, "steps is 0, but it should be greater than or equal to 1."),
        ({"steps": 101}, "steps is 101, but it should be less than or equal to 100."),
        ({"mode": "fsat"}, "Unknown mode 'fsat'. Nearest: fast."),
        ({"products": ["sr", "xx"]}, "Unknown products 'xx'. Known: sc, sr."),
        ({"rate": float("nan")}, "rate is nan, but it should be a finite number."),
        ({"mode": "exact", "steps": 60}, "mode exact takes at most 50 steps."),
    ],
)
def test_a_value_that_cannot_be_used_is_named(keywords, text):
    with pytest.raises(UsvitError) as error:
        work("m", **keywords)
    assert str(error.value) == text


def test_a_required_field_is_demanded():
    with pytest.raises(TypeError, match=r"read\(\): path is required"):
        read()
