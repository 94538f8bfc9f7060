"""Control one worker process from the parent: start it, send it tasks, end it."""

import contextlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import Any

from usvit.limited import worker_process
from usvit.processes import Child

START_SECONDS = 120
"""Time limit for importing the modules of a worker, also from slow disks."""
END_SECONDS = 5
"""Time to wait for a killed process; one that hangs on a dead network disk takes longer to end."""
_RETRY_SECONDS = 1.0
"""Time before a task is done once more in a new process, after the system killed its worker."""


@dataclass(eq=False)
class WorkerFailure(Exception):
    """A task in a worker failed. The text quotes nothing from a file."""

    code: str
    """``timeout``, ``crashed``, ``too_large``, ``killed`` (by the system or a person, such as by the kernel when the
    memory of the machine is full), or the exception's own ``code``."""
    detail: str | None = field(default=None, repr=False)
    """Message of the decoder. It is private, because it may quote a file."""

    def __str__(self) -> str:
        return f"a worker process failed: {self.code}"


_fork_server_owner = 0
"""Id of the process that may use a fork server. A fork of it inherits the record of the server, but cannot use it."""


def process_context(*modules: str) -> BaseContext:
    """Return a context that starts workers from a fork server or as fresh processes.

    It never forks this process, whose libraries have threads.

    Args:
        modules: Modules that the fork server imports in advance; only those of the first call in this process count.
    """
    global _fork_server_owner
    _fork_server_owner = _fork_server_owner or os.getpid()
    if "forkserver" not in multiprocessing.get_all_start_methods() or os.getpid() != _fork_server_owner:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["usvit.limited.preload", *modules])
    return context


class Worker:
    """A process that runs ``worker_process.main``. All methods but ``kill`` must be called by one thread."""

    def __init__(self, context: BaseContext, modules: tuple[str, ...], memory_gb: float | None):
        """Start the process; ``ready`` waits until it has imported ``modules``.

        Args:
            context: Context of ``process_context``.
            modules: Modules that the process imports before its first task.
            memory_gb: Limit of the memory that tasks allocate, in GB; None for no limit.

        Raises:
            OSError, EOFError: The system refuses another process, or the fork server has died.
        """
        self._child = Child(worker_process.main, modules, memory_gb, context=context, daemon=True)

    def ready(self) -> str | None:
        """Wait until the process accepts tasks; return None, or the reason why it does not."""
        kind, value, _ = self._receive(START_SECONDS)
        if kind == worker_process.READY:
            return None
        code, detail, _ = value
        return detail or f"the process ended: {code}"

    @property
    def alive(self) -> bool:
        """True if the process accepts tasks."""
        return self._child.alive

    def ask(self, task: worker_process.WorkerTask) -> Iterator[tuple[Any, int]]:
        """Run a task; yield (value, bytes) as they arrive, and a ``WorkerFailure`` last if the task failed.

        A worker that must be replaced afterwards is ended (``alive``).
        """
        with contextlib.suppress(OSError):  # the process has died, which ``_receive`` reports
            self._child.connection.send_bytes(ForkingPickler.dumps(task))
        while True:
            kind, value, size = self._receive(task.timeout)
            if kind == worker_process.VALUE:
                yield value, size
                continue
            replace = value
            if kind == worker_process.FAILED:
                code, detail, replace = value
                yield WorkerFailure(code, detail), 0
            if replace:
                self.end()
            return

    def kill(self) -> None:
        """Kill the process at once. Any thread may call this; the thread that waits for a value receives a failure."""
        self._child.kill()

    def end(self) -> None:
        """Kill the process and release its resources."""
        self._child.end(END_SECONDS)

    def _receive(self, timeout: float) -> tuple[str, Any, int]:
        """Return (kind, value, bytes) of the next message; for a dead or late worker, a failure."""
        try:
            if not self._child.connection.poll(timeout):
                return worker_process.FAILED, (worker_process.TIMEOUT, None, True), 0
            packed = self._child.connection.recv_bytes()
            kind, value = ForkingPickler.loads(packed)
        except (EOFError, OSError):
            self._child.wait(END_SECONDS)
            # A decoder that crashes, or reaches the limit of memory, ends with another signal.
            code = worker_process.KILLED if self._child.killed_from_outside else worker_process.CRASHED
            return worker_process.FAILED, (code, f"exit code {self._child.exit_code}", True), 0
        return kind, value, len(packed)


def asked_twice(ask: Callable[[], Iterator[tuple[Any, int]]]) -> Iterator[tuple[Any, int]]:
    """Yield what ``ask`` yields; if the system killed its worker, ask once more, and leave out what was yielded before.

    The file may be good, and the memory of the machine was full for a moment. A second time, the failure is yielded.

    Args:
        ask: Returns ``Worker.ask`` of a worker that is alive; the same task yields the same values.
    """
    n_values = 0
    for value, size in ask():
        if isinstance(value, WorkerFailure) and value.code == worker_process.KILLED:
            break
        n_values += 1
        yield value, size
    else:
        return
    time.sleep(_RETRY_SECONDS)
    yield from itertools.islice(ask(), n_values, None)
