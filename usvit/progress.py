"""Progress of long work: a live bar in a terminal, plain lines anywhere else, always on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from usvit.terminal import plain, terminal_of

PLAIN_SECONDS = 10.0
"""Without a terminal, a line at most this often: a log is read, not watched."""


class Progress(Protocol):
    """Where progress is shown: one task at a time."""

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None: ...

    def update(self, done: int, note: str = "") -> None: ...

    def finish(self) -> None: ...

    def say(self, line: str) -> None: ...


@contextmanager
def task(progress: Progress, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show one task while its block runs; the block calls what it gets with the number done."""
    progress.start(name, total, unit)
    try:
        yield progress.update
    finally:
        progress.finish()


def make_progress() -> Progress:
    """A live display where standard error is a terminal, else plain lines."""
    console = Console(file=terminal_of(sys.stderr))
    return LiveProgress(console) if console.is_terminal else PlainProgress()


class LiveProgress:
    """A bar with count, rate and time left."""

    def __init__(self, console: Console):
        self._console = console
        self._bar: RichProgress | None = None

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TextColumn("<"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
        )
        self._bar.start()
        self._task = self._bar.add_task(escape(plain(name)), total=total, completed=done, note="")

    def update(self, done: int, note: str = "") -> None:
        if self._bar:
            self._bar.update(self._task, completed=done, note=escape(plain(note)))

    def finish(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None

    def say(self, line: str) -> None:
        (self._bar.console if self._bar else self._console).print(
            plain(line), highlight=False, markup=False, soft_wrap=True
        )


class PlainProgress:
    """Lines such as ``fold 1/5: 40/250 steps, 61 images/s, 2:10 left``."""

    def __init__(self) -> None:
        self._name, self._total, self._unit, self._first = "", 0, "", 0
        self._begun = self._last = time.monotonic()

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._name, self._total, self._unit, self._first = name, total, unit, done
        self._begun = self._last = time.monotonic()

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self._last < PLAIN_SECONDS or done <= self._first:
            return
        self._last = now
        left = (now - self._begun) / (done - self._first) * (self._total - done)
        self.say(
            f"{self._name}: {done}/{self._total} {self._unit}, {note + ', ' if note else ''}"
            f"{int(left) // 60}:{int(left) % 60:02d} left"
        )

    def finish(self) -> None:
        pass

    def say(self, line: str) -> None:
        print(plain(line), file=sys.stderr, flush=True)


class NoProgress:
    """Shows nothing: for tests and for use as a library."""

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None: ...

    def update(self, done: int, note: str = "") -> None: ...

    def finish(self) -> None: ...

    def say(self, line: str) -> None: ...
