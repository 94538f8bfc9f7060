"""The audit log of a node: ``audit.jsonl``, to which each event is appended once.

Events are rows of the database, written in the transaction of what they tell about. The supervisor appends them to the
file. Each line bears the number of its event, so that a service that was killed continues after the last line.
"""

import json
import os
import secrets
import sqlite3
import stat
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import parse_json
from usvit.node.database import NodeDatabase

KEPT = 10_000
"""Number of events that stay in the database after they were appended, for the status page."""
PORTION = 1000
_TAIL = 1 << 16
_MOST_DAMAGED = 10_000
"""Damaged lines that are looked at for the last line that is whole."""


class NodeAuditLog:
    """Appends the events of a database to a file.

    Args:
        path: the file; it is created, readable for its owner only.

    Raises:
        UsvitError: the file is a link, a pipe or a folder.
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
    """Return the number of the last event in the file, 0 without one, after removing what follows its line.

    A machine that lost its power can leave half a line, or zeros in place of the last lines. The events that were in
    them are in the database, and are appended again.

    Raises:
        UsvitError: the file is a link, a pipe or a folder.
    """
    if path.is_symlink():
        raise UsvitError(f"The audit log {path} is a symbolic link, which is not followed. Move it away.")
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise UsvitError(f"The audit log {path} cannot be opened: {error.strerror}. Move it away.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UsvitError(f"The audit log {path} is not a regular file. Move it away.")
    with open(handle, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for window in (_TAIL, _TAIL << 5, _TAIL << 10):
            start = file.seek(max(0, size - window))
            content = file.read()
            end, n_lines = len(content), 0
            while (end := content.rfind(b"\n", 0, end)) >= 0 and n_lines < _MOST_DAMAGED:
                n_lines += 1
                begin = content.rfind(b"\n", 0, end) + 1
                number = _number(content[begin:end]) if begin or start == 0 else None
                if number is not None:
                    file.truncate(start + end + 1)
                    return number
            if start == 0:
                break
    if size:  # nothing in it can be read: it is kept, and another one begins
        path.rename(path.with_name(f"{path.stem}.damaged-{secrets.token_hex(4)}{path.suffix}"))
    return 0


def _number(line: bytes) -> int | None:
    """Return the number of the event of a line; None if the line is damaged."""
    try:
        number = parse_json(line, "a line of the audit log")["event_id"]
    except (UsvitError, KeyError, TypeError, IndexError):
        return None
    return number if type(number) is int and number > 0 else None
