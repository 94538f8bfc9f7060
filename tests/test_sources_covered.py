"""The page of what usvit has of its sources: each file, command and name in it exists."""

import functools
import os
import shlex
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from usvit.cli import app
from usvit.cli.commands import LazyGroup
from usvit.config import RunConfig, build, load_recipe, merge, parse_overrides
from usvit.config.explaining import Method
from usvit.data.datasets import load_cards
from usvit.models import find_model
from usvit.plain_yaml import parse_yaml
from usvit.upstream.cli.study import DEFAULT
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.sweep import choose_cells, for_dataset, read_recipe, settings_for
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.sources.catalog import SOURCES
from usvit.upstream.studies.specification import load_study

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY / "docs" / "reference" / "sources-covered.yaml"
PAGE = DATA.with_suffix(".md")

ROWS = 278
KEYS = ("row", "source", "paper_has", "where", "command", "state", "note")
TITLES = {
    "gheflati2022": "Gheflati & Rivaz 2022: vision transformers for breast ultrasound",
    "steiner2022": "Steiner et al. 2022: AugReg",
    "dosovitskiy2021": "Dosovitskiy et al. 2021: ViT",
    "alabdulmohsin2023": "Alabdulmohsin et al. 2023: SoViT",
    "touvron2022_thesis, chapter 2": "Touvron 2022, thesis, chapter 2: Grafit",
    "touvron2022_thesis, chapter 3": "Touvron 2022, thesis, chapter 3: DeiT and CaiT",
    "touvron2022_thesis, chapter 4": "Touvron 2022, thesis, chapter 4: ResMLP",
    "touvron2022_thesis, chapter 5": "Touvron 2022, thesis, chapter 5: PatchConvNet",
    "touvron2022_thesis, chapter 6": "Touvron 2022, thesis, chapter 6: DeiT III and A2",
    "touvron2022_three_things": "Touvron et al. 2022: Three things",
}
STATES = {"works": "works", "partly": "partly", "not_covered": "not covered"}
PLACES = ("RUN", "RUN2", "FILE", "DIR")
"""Words in a command that stand for a path of the user's."""
STAGES = {"cv": "finetune", "train": "finetune", "pretrain": "pretrain", "transfer": "transfer"}
SCHEMAS = {"cv": RunConfig, "train": RunConfig, "pretrain": PretrainConfig, "transfer": TransferConfig}

HEAD = """# What the sources have, and what usvit has of it

Each row is a capability, result, table or figure of one of the six sources, the files that hold it, and a command.
`RUN` is a run or weights, `FILE` a file of the user's, and `DIR` a new folder. *Partly*: the note names what is
missing. A figure counts as the table of its points; it is drawn only where the note says so. *Works* says nothing of
accuracy: the trainings of the papers were not repeated at their full size. How far each result agrees with the printed
one shows in the table of its study (`usvit study list`).

This page is made of `docs/reference/sources-covered.yaml`; to renew it:
`USVIT_RENEW=1 python -m pytest tests/test_sources_covered.py -k page`.
"""


@pytest.fixture(scope="module")
def rows():
    return parse_yaml(DATA.read_text(encoding="utf-8"), str(DATA))


def test_all_rows_of_the_audit_are_there_once_and_in_order(rows):
    assert [row["row"] for row in rows] == list(range(1, ROWS + 1))
    assert list(dict.fromkeys(row["source"] for row in rows)) == list(TITLES)  # each in one piece


def test_entries_are_complete(rows):
    for row in rows:
        assert tuple(row) == KEYS, row["row"]
        assert row["paper_has"] and row["state"] in STATES, row["row"]
        assert row["state"] == "not_covered" or (row["where"] and row["command"]), row["row"]
        assert row["state"] == "works" or row["note"], row["row"]  # says what is not covered


def test_every_file_exists(rows):
    lost = [(row["row"], file) for row in rows for file in row["where"] if not (REPOSITORY / file).is_file()]
    assert lost == []


@pytest.mark.slow
def test_every_command_and_name_exists(rows):
    faults = []
    for row in rows:
        if row["command"]:
            try:
                check(shlex.split(row["command"]))
            except Exception as error:  # UsvitError, an assertion, or one of Typer's errors of usage
                faults.append(f"{row['row']}: {row['command']}: {error}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("usvit pretrain --recipe no_such_recipe", "no_such_recipe"),
        ("usvit pretrain --recipe deit_ablation --cell no_such_cell", "no_such_cell"),
        ("usvit pretrain --recipe deit --model no_such_model", "no_such_model"),
        ("usvit pretrain --recipe deit --set nothing.such=1", "nothing"),
        ("usvit transfer --recipe deit --source no_such_source", "no_such_source"),
        ("usvit study no_such_study", "no_such_study"),
        ("usvit bench no_such_model", "no_such_model"),
        ("usvit models list --no-such-option", "no-such-option"),
        ("usvit explain RUN --method no_such_method", "no_such_method"),
        ("usvit nothing", "nothing"),
    ],
)
def test_check_finds_what_does_not_exist(command, said):
    with pytest.raises(Exception, match=said):
        check(shlex.split(command))


def check(words: list[str]) -> None:
    """Parse a command by the command line's own options, and look up every name in it."""
    names, given = parsed(words)
    for name in models_in(names, given):
        find_model(name)
    for name in sources_in(names[0], given):
        assert name in SOURCES, f"unknown source {name}"
    if names == ["study", DEFAULT]:
        for name in given["names"]:
            load_study(name)
    if given.get("dataset"):
        load_cards(given["dataset"])
    if given.get("method"):
        assert given["method"] in get_args(Method), f"unknown method {given['method']}"
    if names[0] in STAGES:
        built(names[0], given)


@functools.cache
def command_line() -> LazyGroup:
    """Return the command line with all its commands, which take 0.1 s to build and are only read."""
    return typer.main.get_command(app).import_all()


def parsed(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of a command, such as ``["data", "preview"]``, and its arguments and options by name."""
    words = list(words)
    assert words.pop(0) == "usvit"
    command = command_line()
    names: list[str] = []
    while hasattr(command, "commands"):
        short = names == ["study"] and words[0] not in command.commands  # usvit study NAME: usvit study run NAME
        names.append(DEFAULT if short else words.pop(0))
        command = command.commands[names[-1]]
    given = command.make_context(names[-1], words).params
    return names, {key: value for key, value in given.items() if value is not None}


def sources_in(command: str, given: dict) -> list[str]:
    """Return the sources of images that a command names."""
    found = given.get("source") if command in ("pretrain", "transfer", "test", "explain") else None
    return [name.partition(":")[0] for name in ([found] if isinstance(found, str) else found or [])]


def models_in(names: list[str], given: dict) -> list[str]:
    """Return the networks that a command names."""
    free = given.get("models") or given.get("classifiers") or () if names[0] in ("bench", "test") else ()
    one = [given["model"]] if given.get("model") else []
    one += [given["name"]] if names == ["models", "info"] else []
    return [name.partition("=")[0] for name in (*free, *one) if name not in PLACES]


def built(command: str, given: dict) -> Any:
    """Build the configuration of a training with the recipe, cell and settings of its command."""
    overrides = parse_overrides(given.get("set_") or [])
    name = given.get("recipe")
    settings: dict = {}
    if command in ("cv", "train"):
        settings = load_recipe(name) if name else {}
    elif name:
        recipe = read_recipe(name, STAGES[command])
        if command == "transfer" and given.get("source"):
            recipe = for_dataset(recipe, given["source"])
        settings = settings_for(recipe, given.get("model"))
        if given.get("cell"):
            chosen = choose_cells(recipe, given["cell"], given.get("model"))
            settings = merge(settings, next(iter(chosen.values())))
    return build(SCHEMAS[command], settings, overrides)


def page(rows) -> str:
    counts = Counter(row["state"] for row in rows)
    told = f"{counts['works']} work, {counts['partly']} work partly, and {counts['not_covered']} are not covered"
    text = f"{HEAD}\nOf {len(rows)} rows {told}.\n"
    for source, title in TITLES.items():
        text += f"\n## {title}\n\n| # | the source has | state | where | command | note |\n|--:|---|---|---|---|---|\n"
        for row in rows:
            if row["source"] == source:
                files = ", ".join(f"[{Path(file).name}](../../{file})" for file in row["where"])
                command = f"`{row['command']}`" if row["command"] else ""
                state = STATES.get(row["state"], row["state"])
                text += f"| {row['row']} | {row['paper_has']} | {state} | {files} | {command} | {row['note'] or ''} |\n"
    return text


def test_page_of_the_documentation_shows_the_rows(rows):
    if os.environ.get("USVIT_RENEW"):
        PAGE.write_text(page(rows), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(rows), (
        "the rows have changed: USVIT_RENEW=1 python -m pytest tests/test_sources_covered.py -k page"
    )
