"""Main function of a worker process: answer tasks until the pipe is closed or the parent ends.

This module imports only the standard library and ``usvit.processes``, which does the same. Modules for tasks are
imported after the worker is set up, or are inherited from the fork server (``preload``).
"""

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from usvit.processes import exit_with_parent

READY, VALUE, FAILED, END = "ready", "value", "failed", "end"
"""Kinds of messages: READY; VALUE with a value; and, at the end of a task, FAILED with (code, detail, whether to
replace this worker) or END with whether to replace it."""
TIMEOUT, CRASHED, TOO_LARGE, KILLED = "timeout", "crashed", "too_large", "killed"
"""Codes of a failed task: it took too long; its process died or it raised an exception; a value is too large."""
_MAX_MESSAGE = 256 * 1024**2
"""Upper bound of a pickled value in bytes. A frame has 150 KB at 224 px; larger values could fill the parent's
memory."""
_MAX_KEPT = 256 * 1024**2
"""Bytes of memory that tasks may leave allocated before the worker is replaced."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OPENCV_FOR_THREADS_NUM"),
    "1",
)
"""Environment variables that limit libraries to one thread, since there are many workers."""


@dataclass(frozen=True)
class WorkerTask:
    """A function of an importable module and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    many: bool
    """True if it returns an iterator, whose values are sent as they are produced."""
    timeout: float
    """Time limit for each value in seconds."""

    def values(self) -> Iterator[Any]:
        if self.many:
            yield from self.function(*self.arguments)
        else:
            yield self.function(*self.arguments)


class _TooLarge(Exception):
    code = TOO_LARGE


_NICENESS = 5
"""Workers run at lower priority than networks that compute on the same cores."""


def main(connection: Connection, modules: tuple[str, ...], memory_gb: float | None) -> None:
    """Answer the tasks of the parent until it closes the pipe.

    Args:
        connection: Pipe that receives tasks and sends messages.
        modules: Modules to import before the first task, so that a broken installation is reported at once.
        memory_gb: Limit of the memory that tasks allocate in addition to the imports, in GB; None for no limit.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    _silence_output()
    exit_with_parent()
    with contextlib.suppress(EOFError, OSError):  # the parent has closed the pipe
        try:
            os.environ.update(ONE_THREAD)
            for module in modules:
                importlib.import_module(module)
            if "cv2" in sys.modules:
                sys.modules["cv2"].setNumThreads(1)
            _limit_resources(memory_gb)
        except BaseException as error:
            connection.send((FAILED, (CRASHED, f"{type(error).__name__}: {error}", True)))
            return
        connection.send((READY, ""))
        max_bytes = _data_bytes() + _MAX_KEPT
        while True:
            _serve(connection, max_bytes)


def _serve(connection: Connection, max_bytes: int) -> None:
    """Answer one task.

    Args:
        connection: Pipe that receives tasks and sends messages.
        max_bytes: A process that holds more bytes afterwards asks to be replaced.

    Raises:
        EOFError, OSError: The parent has closed the pipe.
    """
    packed = connection.recv_bytes()
    try:
        task: WorkerTask = ForkingPickler.loads(packed)  # imports the module of the function
        _set_alarm(task.timeout)
        for value in task.values():
            message = ForkingPickler.dumps((VALUE, value))
            if len(message) > _MAX_MESSAGE:
                raise _TooLarge
            _set_alarm(None)  # the parent may be slow to receive it
            connection.send_bytes(message)
            _set_alarm(task.timeout)
    except BaseException as error:  # decoders may raise anything, such as MemoryError or SystemExit
        _set_alarm(None)
        # An operation that ran out of memory may have left locks or partial state.
        replace = isinstance(error, MemoryError) or _data_bytes() > max_bytes
        connection.send((FAILED, (_code_of(error), f"{type(error).__name__}: {error}"[:1000], replace)))
    else:
        _set_alarm(None)
        connection.send((END, _data_bytes() > max_bytes))


def _code_of(error: BaseException) -> str:
    """Return the attribute ``code`` of an exception, else ``crashed``."""
    code = getattr(error, "code", None)
    return code if isinstance(error, Exception) and isinstance(code, str) else CRASHED


def _silence_output() -> None:
    """Redirect the standard streams to the null device; C libraries print warnings that may quote a file."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _set_alarm(timeout: float | None) -> None:
    """Let the system end this process if the parent, which enforces the time limit, cannot.

    A decoder that hangs in C may hold the interpreter lock, which also blocks the thread that waits for the parent.
    """
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0 if timeout is None else 2 * timeout + 5)  # the default action kills


def _limit_resources(memory_gb: float | None) -> None:
    """Limit the memory of tasks (Linux only), and disable core dumps, which could contain a patient's image.

    RLIMIT_DATA counts allocated memory only; RLIMIT_AS would also count mapped files and the code of libraries.
    """
    if sys.platform == "win32":
        return
    import resource

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):  # if memory runs out anyway, the system kills this process, not the parent
        Path("/proc/self/oom_score_adj").write_text("500")
    if memory_gb:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = _data_bytes() + int(memory_gb * 1024**3)
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _data_bytes() -> int:
    """Return the private memory of this process in bytes; 0 if the platform does not report it."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
