"""One worker process, seen from the parent: start it, ask it, end it."""

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import Any

from usvit.limited import child

START_SECONDS = 120
"""A worker that has not imported its modules after this time, on however slow a disk, does not start."""

END_SECONDS = 5
"""How long to wait for a killed process. The system keeps one that hangs on a dead network disk for longer."""


@dataclass(eq=False)
class WorkerFailure(Exception):
    """A task in a worker came to nothing. Its text quotes no file."""

    code: str
    """``timeout``, ``crashed``, ``too_large``, or the exception's own ``code``."""
    detail: str | None = field(default=None, repr=False)
    """More, in the decoder's own words. Private: it may quote a file."""

    def __str__(self) -> str:
        return f"a worker process failed: {self.code}"


_server_of = 0
"""The process that may have a fork server; a fork of it inherits the record of one, but cannot wait for it."""


def process_context(*modules: str) -> BaseContext:
    """Never a fork of this process, whose libraries have threads: a server that forks workers, or fresh processes.

    ``modules`` are what the server holds ready; only those of the first call in this process count.
    """
    global _server_of
    _server_of = _server_of or os.getpid()
    if "forkserver" not in multiprocessing.get_all_start_methods() or os.getpid() != _server_of:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["usvit.limited.preload", *modules])
    return context


class Worker:
    """A process that runs ``child.main``; each method but ``kill`` is for the one thread that holds it."""

    def __init__(self, context: BaseContext, modules: tuple[str, ...], memory_gb: float | None):
        """Start the process; ``ready`` waits until it has imported ``modules``.

        Raises:
            OSError, EOFError: the system refuses another process, or the fork server has died.
        """
        self._ended = False
        self._connection, theirs = context.Pipe()
        # mypy knows no Process of a context that is not a certain one.
        self._process = context.Process(target=child.main, args=(theirs, modules, memory_gb), daemon=True)  # type: ignore[attr-defined]
        try:
            with _without_script():
                self._process.start()
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()

    def ready(self) -> str | None:
        """Wait until it takes tasks: None; or what keeps it from that."""
        kind, value, _ = self._receive(START_SECONDS)
        if kind == child.READY:
            return None
        code, detail, _ = value
        return detail or f"the process ended: {code}"

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._ended and self._process.is_alive()

    def ask(self, task: child.Task) -> Iterator[tuple[Any, int]]:
        """Yield (value, bytes) as they come, last of all a ``WorkerFailure`` where the task came to a bad end.

        The worker is dead afterwards where it is of no further use (``alive``).
        """
        with contextlib.suppress(OSError):  # it has died: receiving says so
            self._connection.send_bytes(ForkingPickler.dumps(task))
        while True:
            kind, value, size = self._receive(task.timeout)
            if kind == child.VALUE:
                yield value, size
                continue
            replace = value
            if kind == child.FAILED:
                code, detail, replace = value
                yield WorkerFailure(code, detail), 0
            if replace:
                self.end()
            return

    def kill(self) -> None:
        """End the process at once, whatever it does. For any thread: the one that holds it sees it die."""
        self._ended = True  # the signal takes a moment
        with contextlib.suppress(OSError):
            if self._process.is_alive():  # a number of a dead process may be another's by now
                self._process.kill()

    def end(self) -> None:
        """Kill it, and give back what it held."""
        self.kill()
        self._process.join(END_SECONDS)
        self._connection.close()

    def _receive(self, timeout: float) -> tuple[str, Any, int]:
        """(kind, value, bytes) of the next message; a dead or late worker's is made up here."""
        try:
            if not self._connection.poll(timeout):
                return child.FAILED, (child.TIMEOUT, None, True), 0
            packed = self._connection.recv_bytes()
            kind, value = ForkingPickler.loads(packed)
        except (EOFError, OSError):
            self._process.join(END_SECONDS)
            return child.FAILED, (child.CRASHED, f"exit code {self._process.exitcode}", True), 0
        return kind, value, len(packed)


_starting = threading.Lock()


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Hide the running script from ``multiprocessing``, which would run it again in each worker.

    A user's script imports torch, and may lack the guard against that. Workers get functions of modules only.
    """
    main = sys.modules["__main__"]
    with _starting:
        spec, file = getattr(main, "__spec__", None), main.__dict__.pop("__file__", None)
        main.__spec__ = None
        try:
            yield
        finally:
            main.__spec__ = spec
            if file is not None:
                main.__file__ = file
