"""Several folds of a run at the same time, each trained by a process of its own.

The processes share the decoded images, and each GPU is shared by the workers that are dealt to it. This process writes
``run.json``, shows the progress, and passes on signals: then each worker saves the state of its fold, and the same
command continues.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.loading import PixelStore
from usvit.errors import EXIT_BUG, UsvitError
from usvit.experiments.cross_validation_setup import CrossValidationSetup
from usvit.experiments.fold_worker import FoldWork, TrainFold, train_folds
from usvit.experiments.run_directory import RunDirectory
from usvit.files import disk_errors
from usvit.processes import Child, in_words
from usvit.progress import Progress
from usvit.training import SIGNALS, FitResult, Stopped, stop_requests

POLL_SECONDS = 0.2
"""Time after which signals to this process are noticed."""
_REMIND_SECONDS = 1.0
"""Time after which a worker is told to stop again. Before its training steps it does not listen, as there is nothing to
save; after them it finishes its fold."""


@dataclass
class _Worker:
    process: Child
    fold: int | None = None
    """The fold that it trains."""
    is_open: bool = True
    """Whether more messages may come."""


def train_side_by_side(
    setup: CrossValidationSetup,
    run: RunDirectory,
    todo: Sequence[int],
    decode: Callable[[], tuple[PixelStore, NDArray[np.float32]]],
    make_trainer: Callable[..., TrainFold],
    at_once: int,
    threads: int,
    progress: Progress,
    on_result: Callable[[int, FitResult], None],
) -> None:
    """Train folds, some of them at the same time.

    Args:
        setup: The resolved run.
        run: Its directory.
        todo: Numbers of the folds.
        decode: Returns the decoded images and their statistics; it is called once, while the processes start.
        make_trainer: Makes the function that trains a fold; a function of a module (``FoldWork``).
        at_once: Number of folds that are trained at the same time, at most all of ``todo``.
        threads: Number of threads of PyTorch in each process.
        progress: Shows the progress of all folds together.
        on_result: Called with each fold and its result, in the order of ``todo``.

    Raises:
        UsvitError: A fold failed, or a process was ended. The others have saved their state.
        Stopped: A signal requested it. All have saved their state.
        KeyboardInterrupt: As above, by Ctrl-C.
    """
    crew = _Crew(setup, run, todo, _Board(setup, progress, len(todo), at_once), on_result)
    with crew.started(at_once, make_trainer.__module__):
        store, statistics = decode()
        with _shared_pixels(store, run) as (pixels, remove):
            work = FoldWork(
                make_trainer,
                setup,
                run,
                pixels,
                store.pixels.shape,
                store.lesions,
                statistics,
                threads=threads,
                gpu=None,
                copies=1,
            )
            crew.train(work, remove)


@contextmanager
def _shared_pixels(store: PixelStore, run: RunDirectory) -> Iterator[Any]:
    """Write the decoded images to a file that workers map; yields its path and a function that removes it.

    The name is that of a partial file, which a later run removes if this one is killed.
    """
    path = run.path / f".pixels.partial-{os.getpid()}"

    def remove() -> None:
        path.unlink(missing_ok=True)

    try:
        with disk_errors(path), path.open("wb") as file:
            store.pixels.tofile(file)
        yield path, remove
    finally:
        remove()


class _Crew:
    """The worker processes and the folds that are still to be trained."""

    def __init__(
        self,
        setup: CrossValidationSetup,
        run: RunDirectory,
        todo: Sequence[int],
        board: "_Board",
        on_result: Callable[[int, FitResult], None],
    ):
        self._setup, self._run, self._board, self._on_result = setup, run, board, on_result
        self._order, self._waiting, self._results = list(todo), list(todo), dict[int, FitResult]()
        self._workers: list[_Worker] = []
        self._not_ready, self._on_ready = 0, _nothing
        self._failure: Exception | None = None
        self._is_stopping, self._reminded = False, 0.0

    @contextmanager
    def started(self, at_once: int, module: str) -> Iterator[None]:
        """Start the processes, which import a module and wait for their work; at the end of the block, end them."""
        try:
            for _ in range(at_once):
                self._start(module)
            yield
        finally:
            self._board.finish()
            for worker in self._workers:
                worker.process.end()

    def train(self, work: FoldWork, on_ready: Callable[[], None]) -> None:
        """Train all folds; ``on_ready`` is called when all processes have opened the images."""
        gpus = torch.cuda.device_count() if self._setup.device.type == "cuda" else 0
        self._on_ready, at_once = on_ready, len(self._workers)
        with stop_requests(signal.SIGINT) as stop:
            for slot, worker in enumerate(self._workers):
                here = work if not gpus else replace(work, gpu=slot % gpus, copies=-(-at_once // gpus))
                _answer(worker, here)
            while any(worker.is_open for worker in self._workers):
                self._listen()
                if stop.name is not None:
                    self._is_stopping = True
                if self._is_stopping:
                    self._stop_workers()
        if self._failure is not None:
            raise self._failure
        if len(self._results) < len(self._order):
            if stop.name == "SIGINT":
                raise KeyboardInterrupt
            raise Stopped(
                f"Stopped by {stop.name}. Nothing is lost: the folds in training have saved their state, and the same "
                "command continues from there."
            )

    def _start(self, module: str) -> None:
        level = logging.getLogger("usvit").getEffectiveLevel()
        context = multiprocessing.get_context("spawn")
        try:
            process = Child(train_folds, module, level, context=context, held=(*SIGNALS, signal.SIGINT))
        except OSError as error:
            raise UsvitError(
                f"No process can be started to train a fold: {error}. Set folds_at_once=1, or fewer than now."
            ) from error
        self._workers.append(_Worker(process))
        self._not_ready += 1

    def _listen(self) -> None:
        """Handle the messages that are there, or that come within ``POLL_SECONDS``."""
        workers = {worker.process.connection: worker for worker in self._workers if worker.is_open}
        for connection in wait(list(workers), POLL_SECONDS):
            worker = workers[connection]  # type: ignore[index]
            try:
                message = worker.process.connection.recv()
            except (EOFError, OSError):
                self._ended(worker)
            else:
                self._handle(worker, *message)

    def _handle(self, worker: _Worker, kind: str, *values: Any) -> None:
        if kind in ("start", "update", "finish"):
            self._board.show(worker.fold, kind, *values)
        elif kind == "log":
            logging.getLogger(values[0]).log(*values[1:])
        elif kind == "enter":
            self._run.enter(*values)
            _answer(worker, None)
        elif kind == "ready":
            self._not_ready -= 1
            if not self._not_ready:
                self._on_ready()
            self._next(worker)
        elif kind == "done":
            assert worker.fold is not None
            self._results[worker.fold] = values[0]
            self._board.close(worker.fold)
            self._tell_results()
            self._next(worker)
        elif kind == "failed":
            self._fail(worker, *values)

    def _next(self, worker: _Worker) -> None:
        """Give a worker its next fold, or let it end."""
        worker.fold = self._waiting.pop(0) if self._waiting and not self._is_stopping else None
        if worker.fold is not None:
            self._board.open(worker.fold)
        _answer(worker, worker.fold)

    def _tell_results(self) -> None:
        while self._order and self._order[0] in self._results:
            fold = self._order.pop(0)
            self._on_result(fold, self._results.pop(fold))

    def _fail(self, worker: _Worker, text: str, exit_code: int) -> None:
        name = "The training" if worker.fold is None else self._setup.fold_name(worker.fold).capitalize()
        failure: Exception
        if exit_code == EXIT_BUG:
            failure = RuntimeError(f"{name} failed in its process:\n{text}")
        else:
            failure = UsvitError(f"{name}: {text}")
            failure.exit_code = exit_code
        self._failure = self._failure or failure
        self._is_stopping = True

    def _ended(self, worker: _Worker) -> None:
        """Note that a process has ended; without a reason, it was ended from outside."""
        worker.is_open = False
        worker.process.wait()
        code = worker.process.exit_code
        if code and not (self._is_stopping and code == -signal.SIGTERM):
            self._fail(
                worker,
                f"its process {in_words(code)}. The usual reason is lack of memory: set folds_at_once=1, or fewer than "
                "now. The other folds in training have saved their state, and the same command continues from there.",
                UsvitError.exit_code,
            )

    def _stop_workers(self) -> None:
        if (now := time.monotonic()) - self._reminded >= _REMIND_SECONDS:
            self._reminded = now
            for worker in self._workers:
                if worker.is_open:
                    worker.process.terminate()


def _nothing() -> None:
    pass


def _answer(worker: _Worker, value: FoldWork | int | None) -> None:
    with contextlib.suppress(OSError):  # the process has ended, which the next message says
        worker.process.connection.send(value)


class _Board:
    """Shows the steps of all folds as one task, and where each running fold is, in the order of the folds."""

    def __init__(self, setup: CrossValidationSetup, progress: Progress, n_folds: int, at_once: int):
        self._setup, self._progress, self._n_folds, self._at_once = setup, progress, n_folds, at_once
        self._steps: dict[int, int] = {}
        """Steps of each fold that has begun."""
        self._total = 0
        """Steps of one fold; 0 before the first has begun."""
        self._now: dict[int, tuple[int, int, str]] = {}
        """Done, total and unit of what each running fold does."""

    def open(self, fold: int) -> None:
        self._now[fold] = (0, 0, "")

    def close(self, fold: int) -> None:
        self._now.pop(fold, None)
        self._steps[fold] = self._total
        self._update()

    def show(self, fold: int | None, kind: str, *values: Any) -> None:
        if fold is None:  # before its first fold, a worker may compute features
            return
        if kind == "start":
            total, unit, done = values
            self._now[fold] = (done, total, unit)
            if unit == "steps" and not self._total:
                self._total = total
                name = f"{self._n_folds} folds, {self._at_once} at once"
                self._progress.start(name, total * self._n_folds, "steps", done)
        elif kind == "update":
            self._now[fold] = (values[0], *self._now[fold][1:])
        done, _, unit = self._now[fold]
        if unit == "steps":
            self._steps[fold] = done
        self._update()

    def finish(self) -> None:
        if self._total:
            self._progress.finish()

    def _update(self) -> None:
        if self._total:
            where = [
                f"{self._setup.fold_name(fold)} {done}/{total} {unit}"
                for fold, (done, total, unit) in sorted(self._now.items())
                if unit
            ]
            self._progress.update(sum(self._steps.values()), ", ".join(where))
