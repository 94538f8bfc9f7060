"""The list of commands: it says what the commands say, and only the command that is asked for is imported."""

import json
import re
import subprocess
import sys

import pytest
import typer.main

from usvit.cli import app, private_input
from usvit.cli.commands import all_commands, import_command


@pytest.mark.parametrize("name", all_commands())
def test_the_list_says_what_the_first_paragraph_of_the_command_says(name):
    command = import_command(name)
    assert command.name == name
    assert command.help.split("\n\n")[0] == all_commands()[name].help
    assert command.short_help is None and not command.hidden and not command.deprecated  # the list shows none of them


def test_help_is_the_same_with_all_commands_imported(capsys):
    group = typer.main.get_command(app)
    group(["--help"], prog_name="usvit", standalone_mode=False)
    listed = capsys.readouterr().out
    assert all(f" {name} " in listed for name in all_commands())
    group.import_all()(["--help"], prog_name="usvit", standalone_mode=False)
    assert capsys.readouterr().out == listed


@pytest.mark.slow
def test_a_command_imports_no_other_command():
    code = (
        "import json, sys\nfrom usvit.cli import main\nloaded = []\n"
        "for words in (['--help'], ['nothing'], ['cv', '--help'], ['data', 'list', '--help']):\n"
        "    sys.argv = ['usvit', *words]\n"
        "    try: main()\n    except SystemExit: pass\n"
        "    loaded.append([name for name in sys.modules if name.startswith('usvit.')])\n"
        "print(json.dumps(loaded))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    commands = {entry.module for entry in all_commands().values()}
    listing, unknown, cv, data = (commands & set(names) for names in json.loads(said.splitlines()[-1]))
    assert listing == unknown == set()
    assert cv == {"usvit.cli.cv"} and data == cv | {"usvit.cli.data"}


def test_an_unknown_command_is_answered_with_similar_names(usvit):
    answer = usvit("trani")
    assert answer.code == 2 and "Did you mean 'train', 'transfer', 'pretrain'?" in answer.err


def test_without_a_command_the_first_steps_are_named(usvit):
    answer = usvit()
    assert answer.code == 0 and answer.err == ""
    steps = re.findall("^  usvit (.*?)  ", answer.out, re.MULTILINE)
    assert len(steps) == 3
    for step in steps:
        words = step.split()
        flags = {flag for one in import_command(words[0]).params for flag in one.opts}
        assert {word for word in words if word.startswith("--")} <= flags


def test_the_commands_stand_in_groups_and_those_that_come_first_are_first(usvit):
    panels = re.findall("^╭─ (.*?) ─+╮$", usvit("--help").out, re.MULTILINE)
    assert panels[:4] == ["Options", "Data and training", "Evaluation", "Scoring and reading"]
    assert set(panels[1:]) == {entry.panel for entry in all_commands().values()}


@pytest.mark.parametrize("command", ["cv", "score", "evaluate"])
def test_options_that_are_seldom_needed_are_shown_when_all_are_asked_for(usvit, command):
    short, long = (set(re.findall(r"--[a-z][a-z-]+", usvit(command, words).out)) for words in ("--help", "--help-all"))
    hidden = {one.opts[0] for one in import_command(command).params if getattr(one, "hidden", False)}
    assert len(hidden) > 3 and not short & hidden
    assert long >= short | hidden


def test_a_command_without_such_options_has_no_second_help(usvit):
    assert "--help-all" not in usvit("docs", "--help").out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("usvit ", list(all_commands())),
        ("usvit re", ["recipes", "report", "retest", "recalibrate", "review"]),
        ("usvit data pr", ["prepare", "preview"]),
        ("usvit cv --fold", ["--folds"]),
    ],
)
def test_the_shell_completes_commands_and_their_options(monkeypatch, capsys, words, offered):
    monkeypatch.setenv("_USVIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit):
        app(prog_name="usvit")
    assert capsys.readouterr().out.split() == offered


def test_a_traceback_quotes_no_value_if_options_stand_before_the_command():
    assert private_input(["-q", "--verbose", "score", "compare"])
    assert not private_input(["-q", "compare", "score"])
    assert not private_input([]) and not private_input(["nothing"])
