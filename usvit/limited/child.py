"""What runs inside a worker process: answer tasks until the pipe or the parent is gone.

Only the standard library is imported here: what a task needs is imported once the worker is set up, or lies ready in
the fork server (``preload``).
"""

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

READY, VALUE, FAILED, END = "ready", "value", "failed", "end"
"""Kinds of message: READY; VALUE, with a value; and what closes a task: FAILED with (code, detail, whether to replace
this worker), or END with whether to replace it."""

TIMEOUT, CRASHED, TOO_LARGE = "timeout", "crashed", "too_large"
"""Codes of a task that came to a bad end: it took too long; its process died, or it raised; its answer is too large."""

MAX_MESSAGE = 256 * 1024**2
"""Bytes of one value, packed. A frame has 150 KB at 224 px; what is far larger would fill the parent's memory."""

MAX_KEPT = 256 * 1024**2
"""Bytes that a worker may have kept from its tasks before it is replaced."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OPENCV_FOR_THREADS_NUM"),
    "1",
)
"""Environment: the workers are many already, threads inside them would only be in each other's way."""


@dataclass(frozen=True)
class Task:
    """A function of an importable module, and what to call it with."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    many: bool
    """Whether it returns an iterator, whose values are sent as they come."""
    timeout: float
    """Seconds that one value may take."""

    def values(self) -> Iterator[Any]:
        if self.many:
            yield from self.function(*self.arguments)
        else:
            yield self.function(*self.arguments)


class _TooLarge(Exception):
    code = TOO_LARGE


NICENESS = 5
"""Readers run ahead and can wait; networks that compute on the same cores should not."""


def main(connection: Connection, modules: tuple[str, ...], memory_gb: float | None) -> None:
    """Serve one parent.

    Args:
        connection: tasks come in, messages go out.
        modules: imported before the first task, so that a broken installation shows at once.
        memory_gb: what tasks may allocate above what the imports took; None: no limit.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    _silence()
    threading.Thread(target=_follow_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the parent has closed the pipe
        try:
            os.environ.update(ONE_THREAD)
            for module in modules:
                importlib.import_module(module)
            if "cv2" in sys.modules:
                sys.modules["cv2"].setNumThreads(1)
            _limit(memory_gb)
        except BaseException as error:
            connection.send((FAILED, (CRASHED, f"{type(error).__name__}: {error}", True)))
            return
        connection.send((READY, ""))
        too_much = _data_bytes() + MAX_KEPT
        while True:
            _serve(connection, too_much)


def _serve(connection: Connection, too_much: int) -> None:
    """Answer one task.

    Args:
        connection: where it comes from.
        too_much: a process that holds more bytes afterwards asks to be replaced.

    Raises:
        EOFError, OSError: the parent has closed the pipe.
    """
    packed = connection.recv_bytes()
    try:
        task: Task = ForkingPickler.loads(packed)  # imports the module of the function
        _alarm(task.timeout)
        for value in task.values():
            message = ForkingPickler.dumps((VALUE, value))
            if len(message) > MAX_MESSAGE:
                raise _TooLarge
            _alarm(None)  # the parent may take its time
            connection.send_bytes(message)
            _alarm(task.timeout)
    except BaseException as error:  # also MemoryError, SystemExit: whatever a decoder comes up with
        _alarm(None)
        # What was half done when memory ran out may have left locks and pieces behind.
        replace = isinstance(error, MemoryError) or _data_bytes() > too_much
        connection.send((FAILED, (code_of(error), f"{type(error).__name__}: {error}"[:1000], replace)))
    else:
        _alarm(None)
        connection.send((END, _data_bytes() > too_much))


def code_of(error: BaseException) -> str:
    """The exception's own ``code`` if it has one, else ``crashed``."""
    code = getattr(error, "code", None)
    return code if isinstance(error, Exception) and isinstance(code, str) else CRASHED


def _silence() -> None:
    """Decoders' C libraries print warnings, which may quote a file."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _follow_parent() -> None:
    """End with the parent, however it ended: an idle worker sees its pipe close, a busy one would not."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _alarm(timeout: float | None) -> None:
    """Let the system end this process if the parent, which keeps the time limit, does not.

    A decoder that hangs in C may hold the interpreter's lock, and then the thread that follows the parent stands, too.
    """
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0 if timeout is None else 2 * timeout + 5)  # the default action kills


def _limit(memory_gb: float | None) -> None:
    """Bound what tasks allocate, where the system can (Linux); leave no core dump, which would hold a patient's image.

    RLIMIT_DATA counts what is allocated, not the files that are mapped or the libraries' code, as RLIMIT_AS does.
    """
    if sys.platform == "win32":
        return
    import resource

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):  # where memory runs out all the same, this process goes and not the parent
        Path("/proc/self/oom_score_adj").write_text("500")
    if memory_gb:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = _data_bytes() + int(memory_gb * 1024**3)
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _data_bytes() -> int:
    """Memory of this process that no other shares, in bytes; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
