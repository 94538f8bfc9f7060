"""The process that trains folds for a run whose main process writes ``run.json`` and shows the progress."""

import importlib
import logging
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.io import UInt8
from usvit.data.loading import PixelStore
from usvit.errors import EXIT_BUG, UsvitError
from usvit.experiments.cross_validation_setup import CrossValidationSetup
from usvit.experiments.run_directory import RunDirectory
from usvit.processes import exit_with_parent
from usvit.progress import Progress
from usvit.records.run import FoldResultRecord
from usvit.training import SIGNALS, FitResult, Stopped

_UPDATE_SECONDS = 0.2
"""Least number of seconds between two messages about progress."""

TrainFold = Callable[[RunDirectory, int], FitResult]
"""Trains and tests one fold of a run."""


@dataclass(frozen=True)
class FoldWork:
    """What a worker needs; it is pickled."""

    make_trainer: Callable[..., TrainFold]
    """Function of a module: setup, store, ``statistics``, progress, ``gpu``, ``copies`` -> the function that trains."""
    setup: CrossValidationSetup
    run: RunDirectory
    pixels: Path
    """File of the decoded images, (N, S, S, 3) uint8, which all workers map into their memory."""
    shape: tuple[int, ...]
    lesions: UInt8 | None
    statistics: NDArray[np.float32]
    threads: int
    """Number of threads of PyTorch."""
    gpu: int | None
    copies: int
    """Number of workers on that GPU."""


class _Link:
    """The worker's end of the pipe."""

    def __init__(self, connection: Connection):
        self.connection, self._lock = connection, threading.Lock()

    def send(self, kind: str, *values: Any) -> None:
        with self._lock:
            self.connection.send((kind, *values))


class _SentProgress:
    """Sends the progress to the main process."""

    def __init__(self, link: _Link):
        self._link, self._last = link, 0.0

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._last = 0.0
        self._link.send("start", total, unit, done)

    def update(self, done: int, note: str = "") -> None:
        if (now := time.monotonic()) - self._last >= _UPDATE_SECONDS:
            self._last = now
            self._link.send("update", done)

    def finish(self) -> None:
        self._link.send("finish")


class _SentMessages(logging.Handler):
    """Sends log messages to the main process."""

    def __init__(self, link: _Link):
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        self._link.send("log", record.name, record.levelno, record.getMessage())


class _SentRunDirectory(RunDirectory):
    """The run directory, whose ``run.json`` the main process writes."""

    def __init__(self, run: RunDirectory, link: _Link):
        super().__init__(run.path, run.record)
        self._link = link

    def enter(self, result: FoldResultRecord) -> None:
        self._link.send("enter", result)
        self._link.connection.recv()  # the entry is on the disk


def train_folds(connection: Connection, module: str, log_level: int) -> None:
    """Train the folds whose numbers come from the main process, until None comes. This is the worker's main function.

    Signals are left to the main process, except during the training steps, which end between two steps and save.

    Args:
        connection: The end of a pipe, from which the ``FoldWork`` comes first.
        module: Module of ``FoldWork.make_trainer``, which is imported before.
        log_level: Level of the messages that are sent.
    """
    for number in (*SIGNALS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # the main process has blocked them until now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*SIGNALS, signal.SIGINT))
    exit_with_parent()
    link = _Link(connection)
    messages = logging.getLogger("usvit")
    messages.setLevel(log_level)
    messages.addHandler(_SentMessages(link))
    messages.propagate = False
    try:
        importlib.import_module(module)
        try:
            work: FoldWork = connection.recv()
        except EOFError:  # the main process has ended
            return
        _train(link, work, _SentProgress(link))
    except Stopped as stop:
        link.send("stopped", str(stop))
    except UsvitError as error:
        link.send("failed", str(error), error.exit_code)
    except BaseException:
        link.send("failed", traceback.format_exc(), EXIT_BUG)


def _train(link: _Link, work: FoldWork, progress: Progress) -> None:
    torch.set_num_threads(work.threads)
    pixels = np.memmap(work.pixels, dtype=np.uint8, mode="c", shape=work.shape)
    store = PixelStore(pixels, work.lesions)
    train = work.make_trainer(work.setup, store, work.statistics, progress, work.gpu, work.copies)
    run = _SentRunDirectory(work.run, link)
    link.send("ready")
    while (fold := link.connection.recv()) is not None:
        link.send("done", train(run, fold))
