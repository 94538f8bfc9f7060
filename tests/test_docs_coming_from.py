"""Every command of the table for users of other tools exists, with its options."""

import re
import shlex

import typer.main

from tests.conftest import REPOSITORY
from usvit.cli import app
from usvit.config.listing import list_recipes

PAGE = REPOSITORY / "docs" / "explanation" / "coming-from.md"


def test_commands_and_options_exist():
    root = typer.main.get_command(app).import_all()
    recipes = list_recipes()
    commands = re.findall(r"`usvit ([^`]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(commands) >= 17
    for text in commands:
        words = shlex.split(text)
        verb = words.pop(0)
        command = root.commands[verb]
        if words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options, text
        if "--recipe" in words:
            of = "cv" if verb == "train" else verb  # the same recipes
            assert words[words.index("--recipe") + 1] in recipes[f"usvit {of}"], text
