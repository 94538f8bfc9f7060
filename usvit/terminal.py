"""What reaches a terminal: text, and no commands to it.

A terminal obeys what it is sent: an escape sequence in a file's name, a patient's name or a label could move the
cursor over earlier lines, change the window's title or fill the clipboard; a bidirectional override shows a name in
another order than it has. Such characters are written as ``\\u001b``: visible, and in JSON still the same text.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Controls of C0 but tab and line feed, DEL, C1, line separators, and marks of direction (Unicode 3.2, UAX 9)."""


def plain(text: str) -> str:
    """A text without anything that a terminal would obey."""
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class PlainStream:
    """A text stream that writes plain text only, and is no terminal to libraries, which would write colours.

    A carriage return at the beginning stays: progress bars of other libraries begin with it.
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
    """Standard output and error write plain text while the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PlainStream(sys.stdout), PlainStream(sys.stderr)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def terminal_of(stream: Any) -> TextIO:
    """The stream itself, for a display of our own (which makes its texts plain before it adds colours)."""
    raw: TextIO = stream.raw if isinstance(stream, PlainStream) else stream
    return raw
