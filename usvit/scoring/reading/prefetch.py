"""Ordered queue of messages that worker threads read ahead of the consumer, with bounded memory."""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from usvit.limited.worker_process import WorkerTask

OVERHEAD = 2048
"""Bytes that a message needs in addition to its content, so that even a million small ones stay bounded."""

CLOSED: Any = object()
"""Marks the end of an entry among its messages."""


@dataclass(eq=False)
class PrefetchEntry:
    """One task and its messages that wait for the consumer."""

    key: Any
    """Returned with each message."""
    task: WorkerTask | None
    """None: the messages are already known."""
    messages: deque[tuple[Any, int]] = field(default_factory=deque)
    """(message, bytes)."""
    bytes: int = 0
    closed: bool = False
    """True if the entry is complete."""
    blocked: bool = False
    """True if its worker is waiting for space."""


class Ahead:
    """Entries in order, from one consumer to many worker threads and back.

    The consumer adds entries and gets their messages strictly in order. Worker threads take entries in order and put
    messages; they wait when the limit is reached. The first entry has a share of its own, so that other entries never
    block it: its worker waits for the consumer only.
    """

    def __init__(self, limit: int):
        """Limit the waiting messages to ``limit`` bytes for the first entry, and to ``limit`` bytes for all others."""
        self.limit = limit
        self._entries: deque[PrefetchEntry] = deque()
        self._to_do: deque[PrefetchEntry] = deque()
        self._bytes = 0
        self._finished = self.stopped = False
        self._error: BaseException | None = None
        lock = threading.Lock()
        self._work, self._room, self._ready = (threading.Condition(lock) for _ in range(3))

    # The consumer's side.

    def __len__(self) -> int:
        """Return the number of entries whose messages have not all been consumed."""
        return len(self._entries)

    @property
    def waits(self) -> bool:
        """True if no message is ready."""
        return not (self._error or (self._entries and (self._entries[0].messages or self._entries[0].closed)))

    def add(self, entry: PrefetchEntry) -> None:
        with self._work:
            self._entries.append(entry)
            if entry.task is not None:
                self._to_do.append(entry)
                self._work.notify()

    def finish(self) -> None:
        """Declare that no further entry will be added."""
        with self._work:
            self._finished = True
            self._work.notify_all()

    def get(self) -> tuple[PrefetchEntry, Any]:
        """Wait for the next message of the first entry and return it; ``CLOSED`` is the last of each entry.

        Raises:
            The error of a worker thread that gave up (``fail``).
        """
        with self._ready:
            while self.waits:
                self._ready.wait(timeout=1)  # a wait without a timeout cannot be interrupted on Windows
            if self._error:
                raise self._error
            first = self._entries[0]
            if first.messages:
                message, size = first.messages.popleft()
                first.bytes -= size
                self._bytes -= size
                if first.blocked and first.bytes <= self.limit // 2:
                    self._room.notify_all()
                return first, message
            self._entries.popleft()
            # The messages of the new first entry no longer count against the others.
            if self._entries and (self._entries[0].blocked or self._ahead <= self.limit // 2):
                self._room.notify_all()
            return first, CLOSED

    def stop(self) -> None:
        """Let all worker threads end."""
        with self._work:
            self.stopped = True
            self._work.notify_all()
            self._room.notify_all()

    # The worker threads' side.

    def take(self) -> PrefetchEntry | None:
        """Wait for the next entry to work on and return it; None if there are no more."""
        with self._work:
            while not (self._to_do or self._finished or self.stopped):
                self._work.wait()
            return None if self.stopped or not self._to_do else self._to_do.popleft()

    def put(self, entry: PrefetchEntry, message: Any, size: int) -> bool:
        """Wait for space and add a message of ``size`` bytes. Return False if the consumer has stopped."""
        size += OVERHEAD
        with self._room:
            while not (self.stopped or self._has_room(entry, size)):
                entry.blocked = True
                self._room.wait()
            entry.blocked = False
            if self.stopped:
                return False
            entry.messages.append((message, size))
            entry.bytes += size
            self._bytes += size
            if entry is self._entries[0]:
                self._ready.notify()
            return True

    def close(self, entry: PrefetchEntry) -> None:
        """Declare that the last message of an entry has been put."""
        with self._ready:
            entry.closed = True
            if entry is self._entries[0]:
                self._ready.notify()

    def fail(self, error: BaseException) -> None:
        """Raise ``error`` in the consumer."""
        with self._ready:
            self._error = self._error or error
            self._ready.notify()

    @property
    def _ahead(self) -> int:
        """Bytes of the waiting messages of all entries but the first."""
        return self._bytes - self._entries[0].bytes

    def _has_room(self, entry: PrefetchEntry, size: int) -> bool:
        if entry is self._entries[0]:
            return not entry.messages or entry.bytes + size <= self.limit
        return self._ahead + size <= self.limit
