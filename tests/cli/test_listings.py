"""``usvit recipes`` and ``usvit settings``."""

import itertools
import json

from tests.conftest import REPOSITORY
from usvit.config import RunConfig, build_config, parse_overrides
from usvit.config.listing import list_settings


def test_every_recipe_is_listed_below_its_command_with_its_first_line(usvit):
    listed = json.loads(usvit("recipes", "--json").out)
    files = {"usvit cv": "finetune", "usvit pretrain": "pretrain", "usvit transfer": "transfer"}
    assert {command: set(titles) for command, titles in listed.items()} == {
        command: {path.stem for path in (REPOSITORY / "configs" / folder).glob("*.yaml")}
        for command, folder in files.items()
    }
    said = usvit("recipes").out
    assert all(one in said and title in said for titles in listed.values() for one, title in titles.items())


def test_a_recipe_is_listed_with_what_one_needs_to_choose(usvit):
    lines = usvit("recipes").out.splitlines()
    facts = {line.split()[0]: after.strip() for line, after in itertools.pairwise(lines) if after.startswith(" " * 26)}
    assert facts["mae_finetune"] == "imagenet, vit_b16, 224 px, 100 epochs, begins from mae"
    assert facts["demo"].startswith("timm:resnet10t, 96 px")


def test_a_recipe_is_shown_as_its_file_says(usvit):
    file = REPOSITORY / "configs" / "finetune" / "usvit_small.yaml"
    assert usvit("recipes", "usvit_small").out == file.read_text()
    unknown = usvit("recipes", "usvit_smal")
    assert unknown.code == 2 and "usvit_small" in unknown.err and unknown.out == ""


def test_settings_are_those_of_a_run_and_their_defaults_are_what_may_be_typed(usvit):
    every = json.loads(usvit("settings", "--json").out)
    assert every == {key: said._asdict() for key, said in list_settings(RunConfig).items()}
    assert json.loads(usvit("settings", "split", "--json").out).keys() == {key for key in every if key[:6] == "split."}
    typed = parse_overrides([f"{key}={said['default']}" for key, said in every.items() if key[:6] == "split."])
    assert build_config(typed).split == RunConfig().split
    assert usvit("settings", "split.folds").out.startswith("split.folds=5\n    Number of folds")


def test_an_unknown_key_is_answered_with_similar_ones(usvit):
    unknown = usvit("settings", "splt")
    assert unknown.code == 2 and "split" in unknown.err and unknown.out == ""
