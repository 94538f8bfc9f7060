"""Exceptions with an explanation for the user, and the exit codes of the command line.

The command line shows only these as one paragraph; any other exception is a bug in usvit. The exit codes are documented
in the README ("Exit codes").
"""

import difflib
import os
import re
from collections.abc import Iterable

EXIT_DONE, EXIT_BUG, EXIT_USER, EXIT_PARTLY = 0, 1, 2, 3
EXIT_STOPPED = 143
"""Stopped by a signal after the state was saved; a shell reports 128 + 15 for a process that SIGTERM (15) ended."""


COMMAND_LINE = "USVIT_COMMAND_LINE"
"""Environment variable that the command line sets for itself and its child processes."""
_COMMAND = re.compile(r"'usvit [a-z][^']*'|usvit [a-z]+(?: [a-z]+)?(?: (?:--)?[\w.=+<>/-]+)* --[\w-]+[^.,;:)']*")
_SETTING = re.compile(r"--set ([a-z_]+)\.([a-z_.]+)=")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


class UsvitError(Exception):
    """The user's input, configuration or machine prevents the work.

    The text names the file or key, and says what is wrong and what to do about it. It is written with the options of
    the command line, and shown to a Python user with the names of arguments instead: ``out`` for ``--out``.
    """

    exit_code = EXIT_USER

    def __str__(self) -> str:
        text = super().__str__()
        return text if os.environ.get(COMMAND_LINE) else with_arguments(text)


class LeakageError(UsvitError):
    """A group (patient or cluster of near-duplicates) would be in two splits of one fold."""


class SaidElsewhere(UsvitError):
    """Another process of the same run has reported the error; this one ends silently with the same exit code."""

    def __init__(self, exit_code: int = EXIT_USER):
        super().__init__("")
        self.exit_code = exit_code


class Diverged(UsvitError):
    """The loss or the weights of a training became NaN or infinite."""


def with_arguments(text: str) -> str:
    """Replace the options of the command line in a message by the arguments of the Python functions.

    Whole commands, such as ``usvit data list --json``, stay.

    Example:
        >>> with_arguments("--out runs/x exists. Choose another --out, or --set train.steps=20.")
        "'out' runs/x exists. Choose another 'out', or train__steps=20."
    """
    parts, end = [], 0
    for command in _COMMAND.finditer(text):
        parts += [_as_arguments(text[end : command.start()]), command.group()]
        end = command.end()
    return "".join([*parts, _as_arguments(text[end:])])


def _as_arguments(text: str) -> str:
    text = _SETTING.sub(lambda found: f"{found[1]}__{found[2].replace('.', '__')}=", text)
    return _OPTION.sub(lambda found: f"'{_ARGUMENTS.get(found[1], found[1].replace('-', '_'))}'", text)


_ARGUMENTS = {
    "set": "overrides",
    "fold": "folds",
    "input": "inputs",
    "image-id": "image_ids",
    "class": "target",
    "layer": "layers",
    "fix": "fixed",
    "budget": "budgets",
    "keep-list": "data__keep_list",
}
"""Options whose argument has another name."""


def shortened(text: str, most: int = 100) -> str:
    """Shorten a text of any length for a message."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UsvitError:
    """Return the error for an unknown name, which suggests the nearest known names.

    Args:
        kind: Kind of the name, such as "model".
        name: Name that the user gave.
        known: All valid names.
        hint: Closing sentence, such as which command lists the names.
    """
    choices, name = sorted(known), shortened(name)
    small = {choice.lower(): choice for choice in choices}
    near = [small[match] for match in difflib.get_close_matches(name.lower(), small, n=3, cutoff=0.5)]
    if near:
        advice = f"Nearest: {', '.join(near)}."
    elif not choices:
        advice = "There are none."
    else:
        shown = ", ".join(choices[:12]) + (", ..." if len(choices) > 12 else "")
        advice = f"Known: {shown}."
    return UsvitError(" ".join(filter(None, [f"Unknown {kind} '{name}'.", advice, hint])))
