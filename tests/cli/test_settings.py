"""Options of a command that are derived from a section of settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import BeforeValidator, Field
from typer.testing import CliRunner

from usvit.cli.settings import takes_config, takes_options
from usvit.config.fields import Option
from usvit.config.sections import Section
from usvit.errors import UsvitError


def numbers(given):
    return given.split(",") if isinstance(given, str) else given


class Settings(Section):
    """Settings of a command."""

    folds: Annotated[str, Option("--fold", metavar="K")] = "all"
    """Folds: ``all``, or numbers."""
    batch_size: Annotated[int, Field(ge=1, le=64)] = 32
    """Number of images."""
    flip: bool = False
    """Mirror each image."""
    device: Literal["auto", "cpu"] = "auto"
    """Device."""
    link: Annotated[Path | None, Option(metavar="FILE")] = None
    """A table."""
    parts: tuple[Path, ...] = ()
    """Parts; with ``batch_size``, ``auto`` or ``folds``."""
    sizes: Annotated[tuple[int, ...], BeforeValidator(numbers, json_schema_input_type=str | Sequence[int | str])] = (1,)
    """Sizes."""
    check: bool = True
    """Check the result."""
    test: Literal["difference", "equivalence"] | None = None
    """Test."""
    hidden: frozenset[str] = frozenset()
    """Set by the command."""


@pytest.fixture
def run():
    """Run a command with these settings; return Click's result and the settings."""
    taken = []
    app = typer.Typer()

    @app.command()
    @takes_options(without=["hidden"])
    def command(
        settings: Settings,
        model: Annotated[str, typer.Option(help="A run.")],
        json_: bool = typer.Option(False, "--json"),
    ) -> None:
        """Do it."""
        taken.append((model, settings))

    def call(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
        return result, taken

    return call


def test_options_that_are_not_given_have_the_default_of_the_field(run):
    assert run("--model", "m")[1] == [("m", Settings())]


def test_each_field_is_an_option_with_its_name_type_and_metavar(run, tmp_path):
    options = ("--fold", "0,2", "--batch-size", 8, "--flip", "--device", "cpu", "--link", tmp_path / "t.csv")
    _, ((_, settings),) = run("--model", "m", *options)
    assert settings == Settings(folds="0,2", batch_size=8, flip=True, device="cpu", link=tmp_path / "t.csv")


def test_an_option_of_several_values_is_repeated(run, tmp_path):
    _, ((_, settings),) = run("--model", "m", "--parts", tmp_path / "a", "--parts", tmp_path / "b")
    assert settings.parts == (tmp_path / "a", tmp_path / "b")


def test_the_validator_of_a_field_reads_what_the_user_typed(run):
    _, ((_, settings),) = run("--model", "m", "--sizes", "10,20")
    assert settings.sizes == (10, 20)


def test_what_is_true_by_default_can_be_switched_off(run):
    assert [one.check for _, one in run("--model", "m", "--no-check")[1]] == [False]
    assert run("--model", "m", "--check")[1][-1][1].check


def test_a_choice_may_have_no_default(run):
    _, ((_, settings),) = run("--model", "m", "--test", "equivalence")
    assert settings.test == "equivalence"
    assert (
        str(run("--model", "m", "--test", "best")[0].exception)
        == "Unknown test 'best'. Known: difference, equivalence."
    )


def test_the_help_shows_fields_as_options(run):
    text = " ".join(run("--help")[0].output.split())
    assert "Parts; with --batch-size, auto or --fold." in text and "difference|equivalence" in text
    assert "--check --no-check" in text


def test_the_help_is_the_text_of_the_field(run):
    text = run("--help")[0].output
    assert "Folds: all, or numbers. [default: all]" in " ".join(text.split())
    assert "auto|cpu" in text and "FILE" in text and "1<=x<=64" in text
    assert "--hidden" not in text and "--no-flip" not in text and "--settings" not in text


def test_a_number_out_of_range_is_refused_with_the_option(run):
    result, taken = run("--model", "m", "--batch-size", 65)
    assert result.exit_code == 2 and not taken
    assert "--batch-size" in result.output and "64" in result.output


def test_an_unknown_choice_names_the_nearest(run):
    result, taken = run("--model", "m", "--device", "cpuu")
    assert isinstance(result.exception, UsvitError) and not taken
    assert str(result.exception) == "Unknown device 'cpuu'. Nearest: cpu."


class Part(Section):
    """A section of a configuration."""

    unit: Annotated[Literal["group", "image"], Option("--split-by")] = "group"
    """Unit that stays together."""
    repeats: Annotated[int, Field(ge=1)] = 1
    """Number of repeats."""


class Config(Section):
    """A configuration."""

    seed: int = 0
    """Seed."""
    skip: bool = False
    """Skip."""
    split: Part = Part()


@pytest.fixture
def configured():
    taken = []
    app = typer.Typer()

    @app.command()
    @takes_options()
    @takes_config(Config, "seed", "skip", "split.unit", "split.repeats")
    def command(*, settings: Settings, overrides: dict[str, Any]) -> None:
        """Do it."""
        taken.append(overrides)

    def call(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
        return result, taken

    return call


def test_settings_of_a_configuration_that_are_not_given_are_left_to_the_recipe(configured):
    assert configured()[1] == [{}]


def test_given_settings_are_nested_and_set_takes_precedence(configured):
    options = ("--seed", 3, "--skip", "--split-by", "image", "--repeats", 2, "--set", "split.repeats=5")
    assert configured(*options)[1] == [{"seed": 3, "skip": True, "split": {"unit": "image", "repeats": 5}}]


def test_the_help_says_that_the_recipe_decides(configured):
    text = " ".join(configured("--help")[0].output.split())
    assert "Number of repeats. (default: 1, or the recipe's)" in text and "group|image" in text


def test_a_key_that_does_not_lead_to_a_setting_is_a_fault_of_the_program():
    with pytest.raises(TypeError, match=r"seed of seed\.x is not a section"):
        takes_config(Config, "seed.x")
