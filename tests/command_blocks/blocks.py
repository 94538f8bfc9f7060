"""The commands in the fenced blocks of a page."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.conftest import REPOSITORY

PAGES = [
    "README.md",
    *(
        str(path.relative_to(REPOSITORY))
        for part in ("tutorial", "how-to")
        for path in sorted((REPOSITORY / "docs" / part).glob("*.md"))
    ),
]
_BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_USVIT = re.compile(r"([\w./-]*/)?usvit")
SHELL = ("sh", "console", "bash")


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    text: str
    """As it is printed, on one line."""
    program: str
    """The first word that is not a variable; ``usvit`` also in an environment, and for ``torchrun -m usvit``."""
    words: tuple[str, ...]
    """What follows the program, as a shell reads it."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that stand before the program, or that ``export`` sets."""

    @property
    def call(self) -> str:
        """The program and its words, without variables and comment: ``usvit cv --dataset busi``."""
        return " ".join((self.program, *self.words))


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each fenced block of a page."""
    for found in _BLOCK.finditer((REPOSITORY / page).read_text(encoding="utf-8")):
        yield found[1], found[2]


def commands(page: str) -> list[Command]:
    """The commands of all shell blocks of a page, in its order; a script with ``#!`` is one command."""
    found = []
    for language, text in blocks(page):
        if language not in SHELL:
            continue
        if text.startswith("#!"):
            found.append(Command(text, "#!", ()))
            continue
        lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
        if language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found += [command(line) for line in lines if line and not line.startswith("#")]
    return found


def command(line: str) -> Command:
    """Split a line of a shell into variables, program and words."""
    words = shlex.split(line, comments=True)
    variables = []
    if words[0] == "export":
        return Command(line, "export", (), tuple(_variables(words[1:])))
    while re.match(r"[A-Z_]+=", words[0]):
        variables.append(words.pop(0))
    program, rest = words[0], words[1:]
    if program == "torchrun":
        at = rest.index("-m")
        assert rest[at + 1] == "usvit", line
        program, rest = "usvit", rest[at + 2 :]
    elif _USVIT.fullmatch(program):
        program = "usvit"
    return Command(" ".join(line.split()), program, tuple(rest), tuple(_variables(variables)))


def _variables(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, _, value = word.partition("=")
        yield name, value
