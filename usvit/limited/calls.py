"""Functions called one at a time in a process of their own: what a hostile file does to it stays there."""

import multiprocessing
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from usvit.errors import UsvitError
from usvit.limited.child import CRASHED, TIMEOUT, Task
from usvit.limited.worker import Worker, WorkerFailure, process_context

SECONDS = 30.0
"""That a call may take for each value: a list of a million rows takes a third of it."""
MEMORY_GB = 2.0
"""That a call may allocate (Linux enforces it)."""


class LimitReached(Exception):
    """The call came to nothing. The text says which bound it met, and quotes nothing of the file."""


class _Refused:
    """An error that the function raised for the user, on its way to the parent."""

    def __init__(self, text: str):
        self.text = text


class LimitedCalls:
    """A process that calls functions under bounds. A context manager: the process ends with it.

    The process starts with the first call, serves all further ones, and is replaced after a call that ended it. Inside
    a process that may start none (a worker of a data loader, or one of these), functions are called directly.
    """

    def __init__(self, *modules: str, seconds: float = SECONDS, memory_gb: float = MEMORY_GB):
        """Start nothing yet.

        Args:
            modules: held ready by the fork server, which this process may be the first to start.
            seconds: what each value of a call may take.
            memory_gb: what a call may allocate.
        """
        self.seconds, self.memory_gb, self._modules = seconds, memory_gb, modules
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of one call; ``values`` of a function that returns one value."""
        for value in self.values(_alone, function, *arguments):
            return value
        raise AssertionError("a call without a value")

    def values(self, function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
        """What a generator of an importable module yields, as it comes; arguments and values pickle.

        Raises:
            UsvitError: the function's own, or no process starts.
            LimitReached: it took too long or too much memory, its answer is too large, or it crashed.
        """
        if multiprocessing.current_process().daemon:  # bounded by whoever started this process
            yield from function(*arguments)
            return
        worker = self._ready()
        ended = False
        try:
            for value, _ in worker.ask(Task(_told, (function, arguments), True, self.seconds)):
                if isinstance(value, _Refused):
                    raise UsvitError(value.text)
                if isinstance(value, WorkerFailure):
                    raise LimitReached(self._why(value))
                yield value
            ended = True
        finally:
            if not ended:  # it may be at work still, or have half a message in its pipe
                self.close()

    def _ready(self) -> Worker:
        if self._worker is not None and not self._worker.alive:
            self.close()
        if self._worker is None:
            try:
                worker = Worker(process_context(*self._modules), (), self.memory_gb)
            except (OSError, EOFError) as error:
                raise UsvitError(f"A process that reads files does not start: {error}.") from error
            trouble = worker.ready()
            if trouble is not None:
                worker.end()
                raise UsvitError(f"A process that reads files does not start: {trouble}.")
            self._worker = worker
        return self._worker

    def _why(self, failure: WorkerFailure) -> str:
        if failure.code == TIMEOUT:
            return f"it took longer than {self.seconds:g} s"
        if failure.code == CRASHED:
            return f"it took more than {self.memory_gb:g} GB of memory, or crashed its reader"
        return "what it holds is too large"


def _told(function: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> Iterator[Any]:
    try:
        yield from function(*arguments)
    except UsvitError as error:
        yield _Refused(str(error))


def _alone(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    yield function(*arguments)
