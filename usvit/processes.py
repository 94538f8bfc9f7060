"""Child processes: how they start, how they end with their parent, and why they ended.

``Child`` is a process with a pipe, for work that goes on; ``run_module`` asks a fresh interpreter once. A child that
calls ``exit_with_parent`` does not outlive its parent, however that ended. This module imports only the standard
library, so that a child can set itself up before it imports more.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

_PARENT_POLL_SECONDS = 1.0


class Child:
    """A process that runs a function of a module; ``connection`` is this end of the pipe between the two.

    Only ``kill`` may be called by several threads.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *arguments: object,
        context: BaseContext | None = None,
        name: str | None = None,
        daemon: bool = False,
        held: Collection[signal.Signals] = (),
    ):
        """Start the process.

        Args:
            function: It is called with the other end of the pipe and ``arguments``.
            arguments: They are pickled.
            context: How processes are started; None to spawn, because a fork copies locks of libraries with threads.
            name: Name of the process.
            daemon: Whether it is ended when this process ends normally; such a process cannot start others.
            held: Signals that are blocked in the process until it unblocks them, so that it can prepare for them.

        Raises:
            OSError, EOFError: The system refuses another process, or the fork server has died.
        """
        context = context or multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # mypy does not know that every context has Process.
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=function, args=(theirs, *arguments), name=name, daemon=daemon
        )
        self._was_killed = False
        try:
            with _hidden_main_script(), _signals_held(held):
                self._process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True if the process runs and was not killed by ``kill``."""
        return not self._was_killed and self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.exitcode

    @property
    def killed_from_outside(self) -> bool:
        """True if the system or a person killed the process, as the kernel does when the memory is full."""
        return self.exit_code == -getattr(signal, "SIGKILL", 9) and not self._was_killed

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""
        if self._process.is_alive():  # the id of a dead process may be reused
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process at once. A thread that waits for a message sees the pipe close."""
        self._was_killed = True  # the signal takes effect a moment later
        with contextlib.suppress(OSError):
            if self._process.is_alive():
                self._process.kill()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the process has ended, at most ``seconds``."""
        self._process.join(seconds)

    def end(self, seconds: float | None = None) -> None:
        """Kill the process, wait until it has ended, at most ``seconds``, and close the pipe."""
        self.kill()
        self.wait(seconds)
        self.connection.close()


def in_words(exit_code: int) -> str:
    """Return how a process ended: ``was ended by the signal SIGKILL`` or ``ended with code 3``."""
    if exit_code < 0:
        return f"was ended by the signal {signal.Signals(-exit_code).name}"
    return f"ended with code {exit_code}"


def exit_with_parent() -> None:
    """Let this process end when its parent ends, in the middle of its work if necessary.

    A process that waits for a message sees the pipe close, but one that works does not.
    """
    parent, parent_id = multiprocessing.parent_process(), os.getppid()

    def watch() -> None:
        if parent is not None:
            parent.join()
        while parent is None and os.getppid() == parent_id:
            time.sleep(_PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_module(
    module: str, text: str, *, seconds: float, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE`` with a text as its input, and return its exit code and output.

    Args:
        module: Name of the module. Modules in the working folder are not imported.
        text: Input of the process.
        seconds: Time limit, after which the process is killed.
        environment: Changes of the environment variables.

    Raises:
        subprocess.TimeoutExpired: The process took longer.
    """
    package = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-P", "-m", module],  # -P: do not import modules from the working folder
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


_start_lock = threading.Lock()


@contextlib.contextmanager
def _hidden_main_script() -> Iterator[None]:
    """Hide the running script from ``multiprocessing``, which would run it again in each child.

    A user's script may import torch or lack the ``__main__`` guard. Children run functions of modules, so it is not
    needed.
    """
    main = sys.modules["__main__"]
    with _start_lock:
        spec, file = getattr(main, "__spec__", None), main.__dict__.pop("__file__", None)
        main.__spec__ = None
        try:
            yield
        finally:
            main.__spec__ = spec
            if file is not None:
                main.__file__ = file


@contextlib.contextmanager
def _signals_held(signals: Collection[signal.Signals]) -> Iterator[None]:
    """Block signals in this process, and thereby in those that it starts."""
    if not signals or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # otherwise the first start of a process does it, and unblocks SIGINT and SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
