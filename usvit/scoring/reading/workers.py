"""Reader processes: if a file makes a decoder hang or crash, only that file fails.

``concurrent.futures`` fails as a whole when a worker dies, and pools with a time limit per task (pebble, billiard,
deadpool) return one value per task, so that a long cine loop would be in memory completely. Therefore each worker here
has a pipe and its own thread in the parent process, which starts it, sends it tasks, ends it and starts the next one.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from usvit.errors import UsvitError
from usvit.limited.worker import END_SECONDS, Worker, WorkerFailure, asked_twice, process_context
from usvit.limited.worker_process import CRASHED, WorkerTask
from usvit.scoring.items import FAILURES, Failure, Frame, ItemFacts, ReadSettings, ScoringItem
from usvit.scoring.reading.prefetch import CLOSED, Ahead, PrefetchEntry

__all__ = ["End", "Message", "Reader", "Readers", "WorkerFailure"]

STARTS = 3
"""Number of workers in a row that may fail to start before the job is stopped."""

LOOK_AHEAD = 128 * 1024**2
"""Limit on the bytes of messages that wait for the consumer: once for the current item and once for all later items
together. 128 MiB hold 850 frames of 224 px."""

ITEMS_AHEAD = 256
"""Minimum number of items fetched ahead of the consumer; it grows with the number of workers."""


@dataclass(frozen=True)
class End:
    """Marks the end of the messages of an item."""


Message = ItemFacts | Frame | Failure | End
Reader = Callable[[ScoringItem, ReadSettings], Iterator[ItemFacts | Frame | Failure | None]]


class Readers:
    """Worker processes that read items or call functions; a context manager that ends them on exit."""

    def __init__(
        self,
        settings: ReadSettings,
        *,
        workers: int,
        timeout: float,
        memory_gb: float | None,
        reader: Reader | None = None,
    ):
        """Store the settings. Processes start on demand and are kept for the next ``read`` or ``map_calls``.

        Args:
            settings: how items are read.
            workers: number of processes that one ``read`` or ``map_calls`` uses, at least 1.
            timeout: seconds that a worker may take for each message (such as a frame), not counting the time during
                which it waits for the consumer.
            memory_gb: memory that a worker may allocate, enforced on Linux; None or 0: no limit.
            reader: function of an importable module; None: ``item_reader.read_item``. It may yield None to report
                progress; None is not passed on.
        """
        if reader is None:
            from usvit.scoring.reading.item_reader import read_item  # imports pydicom

            reader = read_item
        _refuse_script(reader)
        self.settings, self.reader = settings, reader
        self.workers, self.timeout, self.memory_gb = max(1, workers), timeout, memory_gb or None
        self._context = process_context(reader.__module__)
        self._lock = threading.Lock()
        self._all: set[Worker] = set()
        self._idle: list[Worker] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, including busy ones."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for worker in self._all:
                worker.kill()
        for worker in idle:  # the threads of busy workers notice that they end
            self._dismiss(worker)

    def read(self, items: Iterable[tuple[int, ScoringItem]]) -> Iterator[tuple[int, ScoringItem, Message]]:
        """Read items with bounded memory, whatever their number and length.

        Args:
            items: (number chosen by the caller, item). The iterable is consumed lazily, a few hundred items ahead, in
                the thread of the caller.

        Yields:
            (number, item, message) strictly in the order of the items: the messages of the reader; a ``Failure`` of the
            whole file (``timeout``, ``crashed``, ``too_large``) if the worker was ended; then an ``End``. An item
            with a ``problem`` fails with that code and is not sent to a worker.

        Raises:
            UsvitError: several processes in a row did not start.
        """

        def entries() -> Iterator[PrefetchEntry]:
            for number, item in items:
                if item.problem is None:
                    yield PrefetchEntry(
                        (number, item), WorkerTask(self.reader, (item, self.settings), True, self.timeout)
                    )
                else:
                    yield PrefetchEntry((number, item), None, deque([(Failure(item.problem), 0)]), closed=True)

        failed = False
        with contextlib.closing(self._messages(entries())) as messages:
            for (number, item), message in messages:
                if isinstance(message, WorkerFailure):
                    if failed:
                        continue  # the reader has already reported a failure of the file
                    message = Failure(_known(message.code), detail=message.detail)
                failed = isinstance(message, Failure) and message.frame is None
                yield number, item, End() if message is CLOSED else message

    def map_calls(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Call a function in the workers, with the same limits, once for each of ``arguments``.

        Args:
            function: function of an importable module.
            arguments: arguments of each call, consumed lazily. Arguments and results must be picklable.

        Yields:
            The results in order. A call that took longer than ``timeout``, crashed or raised gives a ``WorkerFailure``
            with the ``code`` of the exception if it is one of ``FAILURES``, else ``crashed``.

        Raises:
            UsvitError: processes do not start.
        """
        _refuse_script(function)
        entries = (PrefetchEntry(None, WorkerTask(function, tuple(each), False, self.timeout)) for each in arguments)
        first = CLOSED
        with contextlib.closing(self._messages(entries)) as messages:
            for _, message in messages:
                if message is CLOSED:
                    yield first
                    first = CLOSED
                elif first is CLOSED:  # ignore a failure of the worker after its answer
                    first = message
                    if isinstance(first, WorkerFailure):
                        first.code = _known(first.code)

    def _messages(self, entries: Iterator[PrefetchEntry]) -> Generator[tuple[Any, Any]]:
        """Yield (key, message) of the entries in order; ``CLOSED`` is the last message of each."""
        ahead = Ahead(LOOK_AHEAD)
        busy: set[Worker] = set()
        threads = [threading.Thread(target=self._work, args=(ahead, busy), daemon=True) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        more, window = True, max(ITEMS_AHEAD, 32 * self.workers)
        try:
            while True:
                added = 0
                # While no message is ready, fetch entries up to the window; otherwise fetch a few to keep workers busy.
                while more and len(ahead) < window and (ahead.waits or added < 2):
                    entry = next(entries, None)
                    if entry is None:
                        more = False
                        ahead.finish()
                    else:
                        ahead.add(entry)
                        added += 1
                if not len(ahead):
                    return
                entry, message = ahead.get()
                yield entry.key, message
        finally:
            ahead.stop()
            for worker in list(busy):
                worker.kill()
            for thread in threads:
                thread.join(END_SECONDS)

    def _work(self, ahead: Ahead, busy: set[Worker]) -> None:
        """Run a worker thread: take entries, send them to the worker, and put its messages."""
        worker: Worker | None = None

        def ask(task: WorkerTask) -> Iterator[tuple[Any, int]]:
            nonlocal worker
            if worker is None or not worker.alive:
                worker = self._replaced(worker)
            busy.add(worker)
            try:
                if ahead.stopped:  # the consumer may not have seen that this worker is busy
                    return
                for message, size in worker.ask(task):
                    if message is not None or not task.many:
                        yield message, size
            finally:
                busy.discard(worker)

        try:
            while (entry := ahead.take()) is not None:
                assert entry.task is not None
                for message, size in asked_twice(partial(ask, entry.task)):
                    if not ahead.put(entry, message, size):
                        assert worker is not None
                        worker.kill()  # its pipe may hold half a message
                        break
                ahead.close(entry)
        except BaseException as error:
            ahead.fail(error)
        finally:
            if worker is not None:
                self._release(worker)

    def _replaced(self, worker: Worker | None) -> Worker:
        """Return a worker that is ready for a task, in place of a dead one or none.

        Raises:
            UsvitError: no worker starts.
        """
        if worker is not None:
            self._dismiss(worker)
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                worker.end()
                self._all.discard(worker)
        trouble: str | None = None
        for _ in range(STARTS):
            with self._lock:
                if self._closed:
                    raise RuntimeError("These readers are closed.")
                try:
                    worker = Worker(self._context, (self.reader.__module__,), self.memory_gb)
                except (OSError, EOFError) as error:  # EOFError: the fork server has died
                    trouble = getattr(error, "strerror", None) or "the system cannot start a process"
                    continue
                self._all.add(worker)
            trouble = worker.ready()
            if trouble is None:
                return worker
            self._dismiss(worker)
        raise UsvitError(
            f"The processes that read files do not start: {trouble}. Tried {STARTS} times. Pass fewer --workers or "
            "more --memory-gb, or reinstall usvit if a library is broken."
        )

    def _release(self, worker: Worker) -> None:
        """Keep a live worker for later use."""
        with self._lock:
            if worker.alive and not self._closed:
                self._idle.append(worker)
                return
        self._dismiss(worker)

    def _dismiss(self, worker: Worker) -> None:
        worker.end()
        with self._lock:
            self._all.discard(worker)


def _known(code: str) -> str:
    return code if code in FAILURES else CRASHED


def _refuse_script(function: Callable[..., Any]) -> None:
    if function.__module__ == "__main__":
        raise ValueError(f"{function.__qualname__} is defined in the running script; workers need a module's function.")
