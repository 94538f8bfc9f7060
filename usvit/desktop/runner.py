"""Runs the steps of the page, one at a time, each in a child process that says how far it is and can be stopped."""

import logging
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Literal

from usvit.desktop.records import StepProgress, StepReport
from usvit.desktop.steps import AppStep
from usvit.errors import UsvitError
from usvit.processes import Child, exit_with_parent, in_words

_SEND_SECONDS = 0.2
"""Least time between two messages about progress."""
_STOP_SECONDS = 10.0
"""Time in which a step may save its state before it is killed."""
_MOST_NOTES = 20


class StepRunner:
    """Runs one step at a time, and knows how the last one went."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._stopped = False
        self._report = StepReport(state="idle", notes=[], error="")

    def report(self) -> StepReport:
        """Return the step, how it goes, and its error."""
        return self._report

    @property
    def runs(self) -> bool:
        """Whether a step is running."""
        return self._report.state == "running"

    def start(self, step: AppStep) -> None:
        """Start a step.

        Raises:
            UsvitError: Another step is running, or the system refuses another process.
        """
        with self._lock:
            if self.runs:
                raise UsvitError("Another step is running. Wait for it, or stop it first.")
            try:
                self._child = Child(_work, step, name=f"usvit {step.name}")
            except (OSError, EOFError) as error:
                raise UsvitError(f"The step cannot be started: {error}. Close other programs and try again.") from error
            self._stopped = False
            self._report = StepReport(state="running", step=step.name, command=step.command, notes=[], error="")
            threading.Thread(target=self._follow, args=(self._child,), daemon=True).start()

    def stop(self) -> None:
        """Stop the step that is running; what it has finished is kept, and starting it again goes on from there."""
        with self._lock:
            child, self._stopped = self._child, True
        if child is not None and child.alive:
            child.terminate()
            child.wait(_STOP_SECONDS)
            child.kill()
            child.wait(_STOP_SECONDS)

    def _follow(self, child: Child) -> None:
        """Take the messages of a child until it ends."""
        end: tuple[Literal["finished", "failed", "stopped"], str] | None = None
        while True:
            try:
                kind, content = child.connection.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                if kind in ("finished", "failed"):
                    end = (kind, content)
                elif kind == "note":
                    self._change(notes=[*self._report.notes, content][-_MOST_NOTES:])
                else:
                    self._change(**{kind: content})
        child.wait()
        with self._lock:
            if self._stopped:
                end = ("stopped", "")
            elif end is None:
                memory = " The memory may be full: close other programs." if child.killed_from_outside else ""
                end = ("failed", f"The step {in_words(child.exit_code or 0)} without a message.{memory}")
            assert end is not None
            state, error = end
            self._change(state=state, error=error, progress=None, link=None)
        child.connection.close()

    def _change(self, **update: Any) -> None:
        self._report = self._report.model_copy(update=update)


class _Messages(logging.Handler):
    """Sends progress, warnings and the address of a page to the process of the page; a ``StepChannel``."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(logging.WARNING)
        self._connection, self._sending, self._last = connection, threading.Lock(), 0.0
        self._task = StepProgress(name="", total=0, unit="", done=0, note="")

    def send(self, kind: str, content: Any) -> None:
        with self._sending:
            self._connection.send((kind, content))

    def emit(self, record: logging.LogRecord) -> None:
        self.send("note", record.getMessage())

    def link(self, address: str) -> None:
        self.send("link", address)

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._task, self._last = StepProgress(name=name, total=total, unit=unit, done=done, note=""), 0.0
        self.update(done)

    def update(self, done: int, note: str = "") -> None:
        if time.monotonic() - self._last >= _SEND_SECONDS or done == self._task.total:
            self._last = time.monotonic()
            self.send("progress", self._task.model_copy(update={"done": done, "note": note}))

    def finish(self) -> None:
        self.send("progress", None)


def _work(connection: Connection, step: AppStep) -> None:
    """Run a step in this process."""
    exit_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the page's process too, which stops this one
    from usvit.threads import configure_threads

    configure_threads()  # before anything imports PyTorch
    messages = _Messages(connection)
    logging.getLogger("usvit").addHandler(messages)
    try:
        step.call(messages, **step.arguments)
    except UsvitError as error:
        messages.send("failed", str(error))
    except Exception as error:
        from usvit.cli import machine_fault, without_values

        fault = machine_fault(error, private=True) if isinstance(error, OSError | RuntimeError) else None
        print("" if fault else without_values(error), end="", flush=True)
        bug = f"This is a bug in usvit ({type(error).__name__}), not a mistake of yours. Please report it."
        messages.send("failed", fault or bug)
    else:
        messages.send("finished", "")
