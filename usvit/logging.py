"""Log messages of usvit: module loggers below ``usvit``, and the one handler of the command line.

Every module logs to ``logging.getLogger(__name__)``. A program that imports usvit sees warnings on standard error, as
Python does by default, and configures the logger ``usvit`` as it likes. The command line shows messages from ``INFO``
on, on standard error, above a progress bar that is being drawn.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console

from usvit.terminal import plain, terminal_of

LEVELS = {-1: logging.WARNING, 0: logging.INFO, 1: logging.DEBUG}
"""Verbosity of the command line -> the lowest level that is shown: ``-q``, the default, ``-v``."""
_run: ContextVar[str] = ContextVar("run", default="")
_console: Console | None = None


def console() -> Console:
    """The console that messages and progress share, so that a message stands above the bar and not inside it."""
    global _console
    stream = terminal_of(sys.stderr)
    if _console is None or _console.file is not stream:
        _console = Console(file=stream)
    return _console


class _ConsoleHandler(logging.Handler):
    """Prints each message on standard error as one line of plain text, a warning with ``Warning: `` before it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            mark = "Warning: " if record.levelno == logging.WARNING else ""
            line = plain(f"{_run.get()}{mark}{record.getMessage()}")
            console().print(line, highlight=False, markup=False, soft_wrap=True)
        except Exception:
            self.handleError(record)


def configure_logging(verbosity: int = 0) -> None:
    """Show messages on standard error.

    Args:
        verbosity: a key of ``LEVELS``; values beyond them count as the nearest.
    """
    logger = logging.getLogger("usvit")
    for handler in [one for one in logger.handlers if isinstance(one, _ConsoleHandler)]:
        logger.removeHandler(handler)
    logger.addHandler(_ConsoleHandler())
    logger.setLevel(LEVELS[max(-1, min(1, verbosity))])


@contextmanager
def messages_of(run: str) -> Iterator[None]:
    """Put the name of a run before each message while the block runs: ``busi-vit_b32-seed0: Resuming ...``."""
    token = _run.set(f"{run}: ")
    try:
        yield
    finally:
        _run.reset(token)
