"""What worker threads have read ahead of the consumer: handed out in order, bounded in memory."""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from usvit.limited.child import Task

OVERHEAD = 2048
"""Bytes that a message takes beside its content: even a million small ones are bounded."""

CLOSED: Any = object()
"""Stands for the end of an entry among its messages."""


@dataclass(eq=False)
class Entry:
    """One task and its messages that wait for the consumer."""

    key: Any
    """Handed back with each message."""
    task: Task | None
    """None: the messages are known already."""
    messages: deque[tuple[Any, int]] = field(default_factory=deque)
    """(message, bytes)."""
    bytes: int = 0
    closed: bool = False
    """No further message comes."""
    blocked: bool = False
    """Its worker waits for room."""


class Ahead:
    """Entries in order, from one consumer to many worker threads and back.

    The consumer adds entries and gets their messages, strictly in order. Worker threads take entries, in order, and put
    messages; they wait where the limit is reached. The first entry has a share of its own, so that others never keep it
    from moving: its worker waits for the consumer alone.
    """

    def __init__(self, limit: int):
        """``limit``: bytes of messages that wait, of entries other than the first; the first has the same again."""
        self.limit = limit
        self._entries: deque[Entry] = deque()
        self._to_do: deque[Entry] = deque()
        self._bytes = 0
        self._finished = self.stopped = False
        self._error: BaseException | None = None
        lock = threading.Lock()
        self._work, self._room, self._ready = (threading.Condition(lock) for _ in range(3))

    # The consumer's side.

    def __len__(self) -> int:
        """Entries that are not handed out whole."""
        return len(self._entries)

    @property
    def waits(self) -> bool:
        """Whether there is nothing to hand out now."""
        return not (self._error or (self._entries and (self._entries[0].messages or self._entries[0].closed)))

    def add(self, entry: Entry) -> None:
        with self._work:
            self._entries.append(entry)
            if entry.task is not None:
                self._to_do.append(entry)
                self._work.notify()

    def finish(self) -> None:
        """No further entry comes."""
        with self._work:
            self._finished = True
            self._work.notify_all()

    def get(self) -> tuple[Entry, Any]:
        """The next message of the first entry; ``CLOSED`` as the last of each. Waits for it.

        Raises:
            The error of a worker thread that gave up (``fail``).
        """
        with self._ready:
            while self.waits:
                self._ready.wait(timeout=1)  # with a limit: a wait without one cannot be interrupted on Windows
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
            # The new first one's messages count no longer against the others.
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

    def take(self) -> Entry | None:
        """The next entry to work on; None: there is none any more. Waits for it."""
        with self._work:
            while not (self._to_do or self._finished or self.stopped):
                self._work.wait()
            return None if self.stopped or not self._to_do else self._to_do.popleft()

    def put(self, entry: Entry, message: Any, size: int) -> bool:
        """Hand over a message of ``size`` bytes; waits for room. False: the consumer wants no more."""
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

    def close(self, entry: Entry) -> None:
        """The last message of an entry has been put."""
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
        """Bytes of all entries but the first."""
        return self._bytes - self._entries[0].bytes

    def _has_room(self, entry: Entry, size: int) -> bool:
        if entry is self._entries[0]:
            return not entry.messages or entry.bytes + size <= self.limit
        return self._ahead + size <= self.limit
