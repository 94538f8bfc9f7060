"""Every command block of README, tutorials and how-tos: its commands are understood, and run if they take seconds."""

import re
from pathlib import Path

import pytest

from tests.command_blocks.blocks import PAGES, SHELL, blocks, commands
from tests.command_blocks.checking import understood
from tests.command_blocks.not_run import OTHER_PROGRAMS, UNDERSTOOD, reason_not_to_run
from tests.command_blocks.places import Places

WITH_COMMANDS = [page for page in PAGES if commands(page)]
SMALLER = {"usvit data phantom": ("--n", "24", "--size", "64"), "usvit retest runs/busi": ("--images", "6")}
"""Beginning of a command -> what is added, so that it takes seconds."""


def test_commands_stand_in_blocks_of_a_shell():
    for page in PAGES:
        for language, text in blocks(page):
            assert language, f"{page}: a block without a language\n{text}"
            assert language in SHELL or not re.search(r"^\s*(\$ )?usvit ", text, re.MULTILINE), f"{page}:\n{text}"


def test_every_reason_not_to_run_is_used():
    found = [one for page in PAGES for one in commands(page)]
    texts = [one.call for one in found if one.program == "usvit"]
    for patterns in UNDERSTOOD.values():
        for pattern in patterns:
            assert any(re.match(pattern, text) for text in texts), pattern
    assert {one.program for one in found} - {"usvit"} == set(OTHER_PROGRAMS)


def expanded(word: str) -> list[str]:
    """What a shell makes of a word: ``~`` and ``*``."""
    if word.startswith("~"):
        return [str(Path(word).expanduser())]
    return sorted(map(str, Path().glob(word))) if "*" in word else [word]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_each_command_is_understood_or_runs(page, usvit, tmp_path, shared_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USVIT_BASE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    places = Places(shared_folder, tmp_path)
    monkeypatch.setenv("USVIT_DATA", str(places.phantom))  # where the images of the runs are
    for command in commands(page):
        for name, value in command.environment:
            monkeypatch.setenv(name, value)
        if command.program != "usvit":
            continue
        places.provide(command)
        if reason_not_to_run(command):
            understood(usvit, command)
        else:
            words = [path for word in command.words for path in expanded(word)]
            words = [places.an_image if word == "benign (433)" else word for word in words]
            words += [part for start, more in SMALLER.items() if command.call.startswith(start) for part in more]
            answer = usvit(*words)
            assert answer.code in (0, 3), f"{command.text}\n{answer.err or answer.out}"
