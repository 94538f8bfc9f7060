"""Reader processes: a file that hangs or crashes a decoder costs that file only.

``concurrent.futures`` breaks as a whole when a worker dies, and pools with a time limit for each task (pebble,
billiard, deadpool) return one value a task: a long cine loop would lie in memory whole. So each worker here has a pipe
and a thread of its own in the parent, which starts it, asks it, ends it and starts the next.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from usvit.errors import UsvitError
from usvit.limited.child import CRASHED, Task
from usvit.limited.worker import END_SECONDS, Worker, WorkerFailure, process_context
from usvit.score.reading.ahead import CLOSED, Ahead, Entry
from usvit.score.records import FAILURES, Facts, Failure, Frame, Item, ReadSettings

__all__ = ["End", "Message", "Reader", "Readers", "WorkerFailure"]

STARTS = 3
"""So many workers in a row may fail to start before the job is stopped."""

LOOK_AHEAD = 128 * 1024**2
"""Bytes of messages that wait for the consumer, of later items than its own, and of its own again: 850 frames of 224 px
each."""

ITEMS_AHEAD = 256
"""Items that are known ahead of the consumer, at least; more where there are many workers."""


@dataclass(frozen=True)
class End:
    """Nothing more comes of an item."""


Message = Facts | Frame | Failure | End
Reader = Callable[[Item, ReadSettings], Iterator[Facts | Frame | Failure | None]]


class Readers:
    """Processes that read items, or call functions. A context manager: they end with it, and with this process."""

    def __init__(
        self,
        settings: ReadSettings,
        *,
        workers: int,
        timeout: float,
        memory_gb: float | None,
        reader: Reader | None = None,
    ):
        """Processes start when there is something to do, and live on for the next ``read`` or ``map_calls``.

        Args:
            settings: how items are read.
            workers: processes that one ``read`` or ``map_calls`` keeps busy, at least 1.
            timeout: seconds that a worker may take for each message (a frame, say); none pass while it waits because
                the consumer is busy.
            memory_gb: what reading may allocate in a worker (Linux enforces it); None or 0: no limit.
            reader: a function of an importable module; None: ``reading.read.read_item``. It may yield None as a
                sign of life, which goes no further.
        """
        if reader is None:
            from usvit.score.reading.read import read_item  # imports pydicom

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
        """End all processes, also those at work."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for worker in self._all:
                worker.kill()
        for worker in idle:  # the others' threads see them die
            self._dismiss(worker)

    def read(self, items: Iterable[tuple[int, Item]]) -> Iterator[tuple[int, Item, Message]]:
        """Read items; the memory of what waits for the consumer is bounded, however many and long they are.

        Args:
            items: (a number of the caller's, the item); taken lazily, some hundred ahead, in the consumer's thread.

        Yields:
            (number, item, message) strictly in the order of items: what the reader yields of each as it comes; a
            ``Failure`` of the whole file (``timeout``, ``crashed``, ``too_large``) where the worker came to a bad end;
            and an ``End``. An item with a ``problem`` fails with it, and no worker is asked.

        Raises:
            UsvitError: processes do not start, several times in a row.
        """

        def entries() -> Iterator[Entry]:
            for number, item in items:
                if item.problem is None:
                    yield Entry((number, item), Task(self.reader, (item, self.settings), True, self.timeout))
                else:
                    yield Entry((number, item), None, deque([(Failure(item.problem), 0)]), closed=True)

        failed = False
        with contextlib.closing(self._messages(entries())) as messages:
            for (number, item), message in messages:
                if isinstance(message, WorkerFailure):
                    if failed:
                        continue  # the reader had given it up before
                    message = Failure(_known(message.code), detail=message.detail)
                failed = isinstance(message, Failure) and message.frame is None
                yield number, item, End() if message is CLOSED else message

    def map_calls(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Call a function in the workers, under the same protection, once for each of ``arguments``.

        Args:
            function: of an importable module.
            arguments: whatever pickles, as must the results; taken lazily.

        Yields:
            Results, in order; in place of one a ``WorkerFailure`` where the call took longer than ``timeout``, crashed,
            or raised: with the exception's ``code`` where it has one of ``FAILURES``, else ``crashed``.

        Raises:
            UsvitError: processes do not start.
        """
        _refuse_script(function)
        entries = (Entry(None, Task(function, tuple(each), False, self.timeout)) for each in arguments)
        first = CLOSED
        with contextlib.closing(self._messages(entries)) as messages:
            for _, message in messages:
                if message is CLOSED:
                    yield first
                    first = CLOSED
                elif first is CLOSED:  # a worker that dies behind its answer has answered
                    first = message
                    if isinstance(first, WorkerFailure):
                        first.code = _known(first.code)

    def _messages(self, entries: Iterator[Entry]) -> Generator[tuple[Any, Any]]:
        """(key, message) of entries in their order; ``CLOSED`` as the last of each."""
        ahead = Ahead(LOOK_AHEAD)
        busy: set[Worker] = set()
        threads = [threading.Thread(target=self._work, args=(ahead, busy), daemon=True) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        more, window = True, max(ITEMS_AHEAD, 32 * self.workers)
        try:
            while True:
                added = 0
                # While nothing is ready there is time to find entries; else a few, so that the workers never run dry.
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
        """A thread's life: take an entry, ask the worker, hand over what it says."""
        worker: Worker | None = None
        try:
            while (entry := ahead.take()) is not None:
                assert entry.task is not None
                if worker is None or not worker.alive:
                    worker = self._replaced(worker)
                busy.add(worker)
                if ahead.stopped:  # too late for the consumer to see that this worker is busy
                    break
                for message, size in worker.ask(entry.task):
                    if message is None and entry.task.many:
                        continue
                    if not ahead.put(entry, message, size):
                        worker.kill()  # it may have half a message in its pipe
                        break
                busy.discard(worker)
                ahead.close(entry)
        except BaseException as error:
            ahead.fail(error)
        finally:
            if worker is not None:
                busy.discard(worker)
                self._release(worker)

    def _replaced(self, worker: Worker | None) -> Worker:
        """A worker that waits for a task, instead of a dead one or none.

        Raises:
            UsvitError: none starts.
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
                    trouble = getattr(error, "strerror", None) or "the system starts none"
                    continue
                self._all.add(worker)
            trouble = worker.ready()
            if trouble is None:
                return worker
            self._dismiss(worker)
        raise UsvitError(
            f"The processes that read files do not start: {trouble}. Tried {STARTS} times. Use fewer with --workers, "
            "allow them more with --memory-gb, or install usvit again if a library is broken."
        )

    def _release(self, worker: Worker) -> None:
        """Keep a worker that lives for later."""
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
        raise ValueError(f"{function.__qualname__} stands in the running script; workers need a function of a module.")
