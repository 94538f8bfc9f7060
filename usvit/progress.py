"""Show the progress of long work on standard error: a live bar in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

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

from usvit.logging import console
from usvit.machine_load import MachineLoad
from usvit.terminal import plain

_PLAIN_SECONDS = 10.0
"""Least number of seconds between two lines without a terminal."""


@runtime_checkable
class Progress(Protocol):
    """Display of progress, one task at a time."""

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None: ...

    def update(self, done: int, note: str = "") -> None: ...

    def finish(self) -> None: ...


@contextmanager
def task(progress: Progress, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show one task while the block runs.

    Args:
        progress: Display to use.
        name: Name of the task.
        total: Number of units in all.
        unit: What is counted, such as "images".

    Yields:
        A function that the block calls with the number of units done.
    """
    progress.start(name, total, unit)
    try:
        yield progress.update
    finally:
        progress.finish()


def make_progress() -> Progress:
    """Return a live display if standard error is a terminal, else plain lines."""
    shared = console()
    return LiveProgress(shared) if shared.is_terminal else PlainProgress()


def shown_progress(progress: Progress | None) -> Progress:
    """Return ``progress``, or the display of a Python user who gave none.

    That is a live bar in a terminal, plain lines in a notebook, and nothing in a script whose standard error is a file.
    Pass ``NO_PROGRESS`` to show nothing anywhere.
    """
    if progress is not None:
        return progress
    return make_progress() if console().is_terminal or _in_notebook() else NO_PROGRESS


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook; IPython is imported there, and is not imported here."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


class LiveProgress:
    """A bar with count, rate and time left, which says if other programs use the same cores."""

    def __init__(self, console: Console):
        self._console, self._load = console, MachineLoad()
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
            self._bar.update(self._task, completed=done, note=escape(plain(_joined(note, self._load.note()))))

    def finish(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None


class PlainProgress:
    """Lines such as ``fold 1/5: 40/250 steps, 61 images/s, 2:10 left``, which say if others use the same cores."""

    def __init__(self) -> None:
        self._load = MachineLoad()
        self._name, self._total, self._unit, self._first = "", 0, "", 0
        self._last = time.monotonic()
        self._begun: tuple[float, int] | None = None

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._name, self._total, self._unit, self._first = name, total, unit, done
        self._last, self._begun = time.monotonic(), None

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if done <= self._first:
            return
        if self._begun is None:  # the time until here includes the start of processes and the loading of networks
            self._begun = now, done
        if now - self._last < _PLAIN_SECONDS:
            return
        self._last = now
        more = _joined(note, self._time_left(now, done), self._load.note())
        print(plain(f"{self._name}: {done}/{self._total} {self._unit}{', ' if more else ''}{more}"), file=sys.stderr)
        sys.stderr.flush()

    def _time_left(self, now: float, done: int) -> str:
        """Return the time left at the rate since the first update; '' if there was no other update yet."""
        begun, first = self._begun or (now, done)
        if done <= first:
            return ""
        left = int((now - begun) / (done - first) * (self._total - done))
        return f"{left // 60}:{left % 60:02d} left"

    def finish(self) -> None:
        pass


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


class NoProgress:
    """Shows nothing."""

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None: ...

    def update(self, done: int, note: str = "") -> None: ...

    def finish(self) -> None: ...


NO_PROGRESS = NoProgress()
