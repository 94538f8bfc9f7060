"""Call functions one at a time in a separate process, which contains the damage that a hostile file can do."""

import multiprocessing
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from usvit.errors import UsvitError
from usvit.limited.worker import Worker, WorkerFailure, asked_twice, process_context
from usvit.limited.worker_process import CRASHED, KILLED, TIMEOUT, WorkerTask

SECONDS = 30.0
"""Default time limit of a call for each value; a list of a million rows takes a third of it."""
_MEMORY_GB = 2.0
"""Default limit of the memory that a call allocates, in GB (enforced on Linux only)."""


class LimitReached(Exception):
    """A call was ended at a limit. The text names the limit, and quotes nothing from the file.

    Args:
        text: The limit.
        code: That of the ``WorkerFailure``.
    """

    def __init__(self, text: str, code: str):
        self.code = code
        super().__init__(text)


class _RefusedCall:
    """Carries a ``UsvitError`` of the function to the parent."""

    def __init__(self, text: str):
        self.text = text


class LimitedCalls:
    """A process that calls functions under limits; a context manager that ends the process.

    The process starts with the first call and serves all further calls; it is replaced after a call that ended it. In
    daemon processes, which cannot start others (such as data loader workers), functions are called directly.
    """

    def __init__(self, *modules: str, seconds: float = SECONDS, memory_gb: float = _MEMORY_GB):
        """Set the limits; the process starts with the first call.

        Args:
            modules: Modules that the fork server imports in advance, if this process starts it.
            seconds: Time limit for each value of a call.
            memory_gb: Limit of the memory that a call allocates, in GB.
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
        """Return the result of one call. Arguments, errors and limits are those of ``values``."""
        (value,) = self.values(_as_iterator, function, *arguments)  # consumes the iterator, so the process is kept
        return value

    def values(self, function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
        """Yield the values of a generator function as they are produced.

        Args:
            function: Generator function of an importable module.
            arguments: Its arguments; they and the values are pickled.

        Raises:
            UsvitError: The function raised it, or no process could be started.
            LimitReached: The call took too much time or memory, a value is too large, or the process crashed.
        """
        if multiprocessing.current_process().daemon:  # the parent of this process limits it
            yield from function(*arguments)
            return
        task = WorkerTask(_carrying_user_errors, (function, arguments), True, self.seconds)
        ended = False
        try:
            for value, _ in asked_twice(lambda: self._ready().ask(task)):
                if isinstance(value, _RefusedCall):
                    raise UsvitError(value.text)
                if isinstance(value, WorkerFailure):
                    raise LimitReached(self._reason(value), value.code)
                yield value
            ended = True
        finally:
            if not ended:  # it may still be working, or its pipe may hold half a message
                self.close()

    def _ready(self) -> Worker:
        if self._worker is not None and not self._worker.alive:
            self.close()
        if self._worker is None:
            try:
                worker = Worker(process_context(*self._modules), (), self.memory_gb)
            except (OSError, EOFError) as error:
                raise UsvitError(f"The process that reads files cannot be started: {error}.") from error
            trouble = worker.ready()
            if trouble is not None:
                worker.end()
                raise UsvitError(f"The process that reads files cannot be started: {trouble}.")
            self._worker = worker
        return self._worker

    def _reason(self, failure: WorkerFailure) -> str:
        if failure.code == TIMEOUT:
            return f"it took longer than {self.seconds:g} s"
        if failure.code == KILLED:
            return "the system killed its reader, perhaps because the memory of the machine was full"
        if failure.code == CRASHED:
            return f"it took more than {self.memory_gb:g} GB of memory, or crashed its reader"
        return "its content is too large"


def _carrying_user_errors(function: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> Iterator[Any]:
    try:
        yield from function(*arguments)
    except UsvitError as error:
        yield _RefusedCall(str(error))


def _as_iterator(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    yield function(*arguments)
