"""The processes of a node: how they start, and how they end with their service."""

import contextlib
import importlib
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from usvit.errors import EXIT_BUG, EXIT_USER, UsvitError
from usvit.logging import configure_logging
from usvit.node.config.file import load_node_config
from usvit.processes import Child
from usvit.threads import configure_threads

FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0
"""Seconds between the starts of a process that dies again and again: doubled each time, from the first to the last."""
_LONG_LIFE = 60.0
"""After so many seconds, a process counts as healthy, and the next wait is the first one again."""
ORPHAN_SECONDS = 5.0
"""Time that a process has to end by itself when its service was killed."""
_QUIET = ("pynetdicom", "highdicom", "pydicom", "dicomweb_client", "urllib3", "retrying")
"""Loggers whose messages quote names, UIDs or data sets."""


class ChildProcess:
    """A process of the service, which is started again when it dies.

    Args:
        name: name of the process.
        target: ``module:function``. The function takes the configuration, an event that ends it, and the argument if
            that is not "". It calls ``report_ready`` when it has started.
        config: the validated configuration as a file.
        argument: a text for the function.
    """

    def __init__(self, name: str, target: str, config: Path, argument: str = ""):
        self.name, self._target, self._config, self._argument = name, target, config, argument
        self._process: Child | None = None
        self.n_starts = 0
        """Number of times that the process was started."""
        self._started_at, self._wait = -math.inf, FIRST_WAIT

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def start(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = Child(_run_child, self._target, self._config, self._argument, name=self.name)
        self.n_starts += 1
        self._started_at = time.monotonic()

    def wait_until_ready(self, stop: threading.Event) -> None:
        """Wait until the process has started.

        Args:
            stop: ends the wait.

        Raises:
            UsvitError: it cannot start; the text is its own.
        """
        assert self._process is not None
        while not stop.is_set():
            if self._process.connection.poll(0.1):
                try:
                    message = self._process.connection.recv()
                except EOFError:
                    message = f"The process '{self.name}' ended while it started."
                if message is not None:
                    raise UsvitError(message)
                return

    def revive(self) -> bool:
        """Start the process again if it has died and its waiting time is over; return whether it was started."""
        if self.alive:
            return False
        lived = time.monotonic() - self._started_at
        if lived > _LONG_LIFE:
            self._wait = FIRST_WAIT
        if lived < self._wait:
            return False
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        self.start()
        return True

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def end(self, seconds: float) -> None:
        """Wait for the process to end, and kill it after ``seconds``."""
        if self._process is not None:
            self._process.wait(max(0.0, seconds))
            self._process.end()


_parent: Connection | None = None
"""Where a child reports to its service."""


def report_ready() -> None:
    """Tell the service that this process has started; outside of a service it does nothing."""
    _report(None)


def _report(message: str | None) -> None:
    if _parent is not None:
        with contextlib.suppress(OSError):
            _parent.send(message)


def _run_child(parent: Connection, target: str, config: Path, argument: str) -> None:
    """Run the main function of a process until SIGTERM arrives or the service ends."""
    global _parent
    _parent = parent
    os.umask(0o077)
    stop = stop_on_signals()
    service = multiprocessing.parent_process()
    if service is not None:
        threading.Thread(target=_stop_with, args=(service, stop), daemon=True).start()
    configure_threads()
    silence_libraries()
    configure_logging()
    module, _, function = target.partition(":")
    try:
        run: Callable[..., None] = getattr(importlib.import_module(module), function)
        run(load_node_config(config), stop, *([argument] if argument else []))
    except UsvitError as error:
        _report(str(error))
        os._exit(EXIT_USER)
    except Exception as error:  # its message may quote a data set
        trace = traceback.extract_tb(error.__traceback__)
        where = f"{Path(trace[-1].filename).name}:{trace[-1].lineno}" if trace else "an unknown place"
        text = f"The process '{function}' stopped with {type(error).__name__} at {where}."
        print(text, file=sys.stderr, flush=True)
        _report(text)
        os._exit(EXIT_BUG)


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop


def silence_libraries() -> None:
    """Keep libraries from logging and warning about what is in data sets."""
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore")
    threading.excepthook = _report_thread


def _report_thread(failed: threading.ExceptHookArgs) -> None:
    """Say where a thread failed, without its message, which may quote a data set.

    Threads of pynetdicom end like this if a peer sends nonsense; their associations end with them.
    """
    trace = traceback.extract_tb(failed.exc_traceback)
    if trace and not any("pynetdicom" in Path(one.filename).parts for one in trace):
        place = f"{Path(trace[-1].filename).name}:{trace[-1].lineno}"
        print(f"usvit node: a thread stopped with {failed.exc_type.__name__} at {place}.", file=sys.stderr, flush=True)


def _stop_with(parent: BaseProcess, stop: threading.Event) -> None:
    """End this process when its service is gone, in the middle of its work if necessary.

    Nobody waits for the work: what is not committed is done again by the next service.
    """
    parent.join()
    stop.set()
    time.sleep(ORPHAN_SECONDS)
    os._exit(EXIT_BUG)
