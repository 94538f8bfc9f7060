"""The audit log of a node: ``audit.jsonl``, to which each event is appended once.

Events are rows of the database, written in the transaction of what they tell about. The supervisor appends them to the
file. Each line bears the number of its event, so that a service that was killed continues after the last line.
"""

import json
import os
import sqlite3
from pathlib import Path

from usvit.node.database import NodeDatabase

KEPT = 10_000
"""Number of events that stay in the database after they were appended, for the status page."""
PORTION = 1000
_TAIL = 1 << 16


class NodeAuditLog:
    """Appends the events of a database to a file.

    Args:
        path: the file; it is created, readable for its owner only.
    """

    def __init__(self, path: Path):
        self._path = path
        self._last = _last_event(path)

    def append(self, database: NodeDatabase) -> int:
        """Append the events that are not in the file yet, and return their number."""
        n_appended = 0
        while rows := database.rows(
            "SELECT id, time, event, data FROM audit_events WHERE id > ? ORDER BY id LIMIT ?", (self._last, PORTION)
        ):
            lines = "".join(map(_line, rows))
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(handle, "ab") as file:
                file.write(lines.encode())
                file.flush()
                os.fsync(handle)
            self._last = rows[-1]["id"]
            n_appended += len(rows)
        if n_appended:
            with database.transaction() as connection:
                connection.execute("DELETE FROM audit_events WHERE id <= ?", (self._last - KEPT,))
        return n_appended


def _line(row: sqlite3.Row) -> str:
    told = {"event_id": row["id"], "time": row["time"], "event": row["event"]}
    return json.dumps(told | json.loads(row["data"])) + "\n"


def _last_event(path: Path) -> int:
    """Return the number of the last event in the file, 0 without one, after removing a line that is not complete."""
    try:
        with open(path, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            complete = tail.rfind(b"\n") + 1
            if complete < len(tail):
                file.truncate(size - len(tail) + complete)
            lines = tail[:complete].splitlines()
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-1])["event_id"]) if lines else 0
