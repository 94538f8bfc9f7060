"""A package of a third party adds a command, a file and a source of images by an entry point."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from usvit.plugins import BUILT_IN, Plugin, image_source, load, plugin_commands, plugins

PLUGIN = """
from usvit.plugins import CommandEntry, Plugin, RunKind

PLUGIN = Plugin(
    commands={
        "greet": CommandEntry("greetings.cli", "greet", "Write a greeting."),
        "data greet": CommandEntry("greetings.cli", "greet", "Write a greeting."),
        "cv": CommandEntry("greetings.cli", "greet", "Take the place of a command of the core."),
    },
    records="greetings.records",
    run_kinds={
        "greeting": RunKind(of_folds=False, figures="greeting.json"),
        "cv": RunKind(figures="in the place of a kind of the core"),
    },
)
"""
RECORDS = '''
from typing import ClassVar

from usvit.records import FileRecord


class GreetingRecord(FileRecord):
    """A greeting."""

    KIND: ClassVar[str] = "greeting"
    VERSION: ClassVar[str] = "1.0"
    name: str


FILE_RECORDS = (GreetingRecord,)
TABLE_ROWS = ()
'''
CLI = '''
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli.settings import takes_options
from usvit.config.sections import Section


class GreetingSettings(Section):
    """Settings of a greeting."""

    name: str = "world"
    """Who is greeted."""


@takes_options()
def greet(settings: GreetingSettings, out: Annotated[Path, typer.Option(help="JSON file to write.")]) -> None:
    """Write a greeting."""
    from greetings.records import GreetingRecord
    from usvit.records import load_record, save_record

    save_record(out, GreetingRecord(schema_version="1.0", name=settings.name))
    print(f"hello {load_record(out, GreetingRecord).name}")
'''


@pytest.fixture
def run(tmp_path):
    """Install the package in a folder, and run usvit with it; returns the finished process."""
    package = tmp_path / "site" / "greetings"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("plugin", PLUGIN), ("records", RECORDS), ("cli", CLI)):
        (package / f"{name}.py").write_text(text)
    info = tmp_path / "site" / "greetings-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 0.1\n")
    entries = ("a_broken = nowhere:PLUGIN", "b_wrong = greetings:__name__", "greetings = greetings.plugin:PLUGIN")
    (info / "entry_points.txt").write_text("\n".join(["[usvit.plugins]", *entries, ""]))

    def call(*words, code="from usvit.cli import main\nmain()"):
        paths = [str(tmp_path / "site"), str(REPOSITORY)]
        start = f"import sys\nsys.path[:0] = {paths!r}\nsys.argv = {['usvit', *map(str, words)]!r}\n"
        return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, cwd=tmp_path)

    return call


@pytest.mark.slow
def test_a_plugin_adds_a_command_with_options_of_its_settings(run, tmp_path):
    assert "Write a greeting." in run("--help").stdout
    assert "Who is greeted. [default: world]" in " ".join(run("greet", "--help").stdout.replace("│", " ").split())
    done = run("greet", "--name", "Ada", "--out", tmp_path / "a.json")
    assert done.returncode == 0 and "hello Ada" in done.stdout, done.stderr
    assert json.loads((tmp_path / "a.json").read_text()) == {"schema_version": "1.0", "name": "Ada"}


@pytest.mark.slow
def test_a_plugin_adds_a_command_to_a_group_of_the_core(run, tmp_path):
    done = run("data", "greet", "--out", tmp_path / "a.json")
    assert done.returncode == 0 and "hello world" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_plugin_does_not_replace_a_command_of_the_core_and_a_broken_one_is_left_out_with_a_warning(run):
    done = run("--help")
    assert done.returncode == 0 and "Take the place" not in done.stdout and "Cross-validate a model" in done.stdout
    assert "The plug-in a_broken (nowhere:PLUGIN) cannot be loaded: No module named 'nowhere'" in done.stderr
    assert "The plug-in b_wrong: greetings:__name__ is not a usvit.plugins.Plugin." in done.stderr


@pytest.mark.slow
def test_a_plugin_adds_a_kind_of_run_and_replaces_none_of_the_core(run):
    done = run(
        code="from usvit.records import RunRecord, run_kinds\nfrom usvit.records.schemas import schema_of\n"
        "print(run_kinds()['greeting'].figures, run_kinds()['cv'].figures)\n"
        "print('greeting' in schema_of(RunRecord)['properties']['kind']['enum'])"
    )
    assert done.stdout.splitlines() == ["greeting.json metrics.json and predictions.csv", "True"], done.stderr


@pytest.mark.slow
def test_the_schema_of_a_plugins_file_is_made_with_the_others(run):
    done = run(code="from usvit.records.schemas import all_schemas\nprint(all_schemas()['greeting.schema.json'])")
    assert json.loads(done.stdout)["$id"].endswith("/greeting-1.0.json"), done.stderr


def test_the_products_of_this_distribution_are_plugins():
    assert plugins()[: len(BUILT_IN)] == tuple(load(name) for name in BUILT_IN)
    assert all(isinstance(plugin, Plugin) for plugin in plugins())
    assert {"pretrain", "node", "data coarse"} <= plugin_commands().keys()


def test_without_a_plugin_there_are_no_named_images(monkeypatch):
    monkeypatch.setattr("usvit.plugins.plugins", tuple)
    assert image_source() is None
