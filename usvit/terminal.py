"""Keep control sequences out of terminal output.

Terminals execute escape sequences: one in a file name, a patient's name or a label could overwrite earlier lines,
change the title of the window or fill the clipboard, and a bidirectional override changes the displayed order of
characters. Such characters are written as ``\\u001b``, which is visible, and the same text in JSON.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""C0 controls except tab and line feed, DEL, C1 controls, line separators, and direction marks (Unicode 3.2, UAX 9)."""


def plain(text: str) -> str:
    """Escape all characters of a text that a terminal would interpret."""
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class PlainStream:
    """A text stream that writes plain text only. It is not a terminal, so that libraries do not write colours.

    A leading carriage return is kept, because progress bars of other libraries use it.
    """

    def __init__(self, stream: TextIO):
        self.raw = stream

    def write(self, text: str) -> int:
        bare = text.lstrip("\r")
        self.raw.write(("\r" if bare != text else "") + plain(bare))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Let standard output and standard error write plain text while the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PlainStream(sys.stdout), PlainStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def on_own_terminal() -> bool:
    """Return whether errors are read on the user's own terminal, and not in a log file that others may read."""
    stream = terminal_of(sys.stderr)
    return bool(stream.isatty()) if hasattr(stream, "isatty") else False


def terminal_of(stream: Any) -> TextIO:
    """Return the original stream, for a display that makes its texts plain before it adds colours."""
    raw: TextIO = stream.raw if isinstance(stream, PlainStream) else stream
    return raw
