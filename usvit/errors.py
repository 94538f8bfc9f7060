"""Exceptions with an explanation for the user, and the exit codes of the command line.

The command line shows only these as one paragraph; any other exception is a bug in usvit. The exit codes are documented
in the README ("Exit codes").
"""

import difflib
from collections.abc import Iterable

EXIT_DONE, EXIT_BUG, EXIT_USER, EXIT_PARTLY = 0, 1, 2, 3
EXIT_STOPPED = 143
"""Stopped by a signal after the state was saved; a shell reports 128 + 15 for a process that SIGTERM (15) ended."""


class UsvitError(Exception):
    """The user's input, configuration or machine prevents the work.

    The text names the file or key, and says what is wrong and what to do about it.
    """

    exit_code = EXIT_USER


class LeakageError(UsvitError):
    """A group (patient or cluster of near-duplicates) would be in two splits of one fold."""


class SaidElsewhere(UsvitError):
    """Another process of the same run has reported the error; this one ends silently with the same exit code."""

    def __init__(self, exit_code: int = EXIT_USER):
        super().__init__("")
        self.exit_code = exit_code


class Diverged(UsvitError):
    """The loss or the weights of a training became NaN or infinite."""


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
