"""What can go wrong for a user, as exceptions that carry their own explanation.

Only these reach a user as one paragraph; anything else is a bug of usvit. The exit
codes are the contract of the command line (README, "Exit codes").
"""

import difflib
from collections.abc import Iterable

EXIT_DONE, EXIT_BUG, EXIT_USER, EXIT_PARTLY = 0, 1, 2, 3
EXIT_STOPPED = 143
"""Stopped by a signal with its state on the disk: what a shell says of a process that SIGTERM (15) ended, 128 + 15."""


class UsvitError(Exception):
    """The user's input, configuration or machine stands in the way.

    The text names the file or key, says what is wrong, and what to do about it.
    """

    exit_code = EXIT_USER


class LeakageError(UsvitError):
    """A group (patient or duplicate cluster) would stand in two parts of one fold."""


class SaidElsewhere(UsvitError):
    """Another process of the same work has said what stands in the way: this one ends as that one does, in silence."""

    def __init__(self, exit_code: int = EXIT_USER):
        super().__init__("")
        self.exit_code = exit_code


class Diverged(UsvitError):
    """A training's loss or weights are no finite numbers any more."""


def shortened(text: str, most: int = 100) -> str:
    """For a message: the beginning of a text that may be of any length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UsvitError:
    """The error for a name that usvit does not know, with the nearest that it does.

    Args:
        kind: what the name stands for, such as "model".
        name: what the user wrote.
        known: every name that would have been accepted.
        hint: a closing sentence, such as which command lists the names.
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
