"""The database of a node: what was received, scored, written and sent.

It is a SQLite file that every process of the node opens, in WAL mode with ``synchronous=FULL``: a transaction that is
committed survives a crash of the machine. Each step of the service is one transaction, so that a process may be killed
at any time. UIDs of patients are in this file, which only the owner can read, and nowhere outside of the folder.
"""

import json
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from usvit.files import Database

MIGRATIONS = (
    """
CREATE TABLE studies (
    id INTEGER PRIMARY KEY,
    study_uid TEXT NOT NULL UNIQUE,
    pseudonym TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('open', 'ready', 'scoring', 'done', 'left_alone', 'failed')),
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    revision INTEGER NOT NULL DEFAULT 1,
    rule TEXT,
    model TEXT,
    reason TEXT,
    started_at TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    scorer TEXT,
    settings TEXT,
    done_at REAL,
    patient TEXT -- pseudonyms of the identity in its images
);
CREATE INDEX studies_by_state ON studies (state, last_at);
CREATE TABLE instances (
    id INTEGER PRIMARY KEY,
    sop_instance_uid TEXT NOT NULL UNIQUE,
    study_uid TEXT NOT NULL,
    series_uid TEXT NOT NULL,
    sop_class_uid TEXT NOT NULL,
    transfer_syntax_uid TEXT NOT NULL,
    path TEXT,
    file_sha256 TEXT NOT NULL,
    dataset_sha256 TEXT NOT NULL,
    n_bytes INTEGER NOT NULL,
    calling_ae TEXT NOT NULL DEFAULT '',
    source TEXT NOT NULL CHECK (source IN ('dimse', 'folder', 'dicomweb', 'cmove', 'cget')),
    received_at REAL NOT NULL,
    study_id INTEGER NOT NULL REFERENCES studies (id),
    state TEXT NOT NULL CHECK (state IN ('stored', 'scored', 'failed', 'ignored', 'expired')),
    failure_code TEXT,
    revision INTEGER,
    attributes TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX instances_by_study ON instances (study_id, state);
CREATE INDEX instances_by_size ON instances (state, n_bytes);
CREATE INDEX instances_by_path ON instances (path);
CREATE INDEX instances_waiting ON instances (state) WHERE state = 'stored';
CREATE TABLE scores (
    instance_id INTEGER NOT NULL REFERENCES instances (id),
    frame INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (instance_id, frame)
) WITHOUT ROWID;
CREATE TABLE failures (
    instance_id INTEGER NOT NULL REFERENCES instances (id),
    frame INTEGER,
    code TEXT NOT NULL
);
CREATE INDEX failures_by_instance ON failures (instance_id);
CREATE TABLE results (
    id INTEGER PRIMARY KEY,
    study_id INTEGER NOT NULL REFERENCES studies (id),
    revision INTEGER NOT NULL,
    instance_id INTEGER REFERENCES instances (id),
    kind TEXT NOT NULL CHECK (kind IN ('sr', 'sc', 'gsps')),
    sop_instance_uid TEXT NOT NULL UNIQUE,
    sop_class_uid TEXT NOT NULL,
    series_uid TEXT NOT NULL,
    result_study_uid TEXT NOT NULL,
    path TEXT,
    sha256 TEXT NOT NULL,
    predecessor_uid TEXT,
    created_at REAL NOT NULL
);
CREATE INDEX results_by_study ON results (study_id, revision);
CREATE TABLE missing_results (
    study_id INTEGER NOT NULL REFERENCES studies (id),
    revision INTEGER NOT NULL,
    instance_id INTEGER REFERENCES instances (id),
    kind TEXT NOT NULL,
    code TEXT NOT NULL
);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY,
    result_id INTEGER NOT NULL REFERENCES results (id),
    peer TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'sent', 'committed', 'gave_up', 'dry_run')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at REAL NOT NULL,
    first_sent_at REAL,
    done_at REAL,
    last_status INTEGER,
    last_error TEXT,
    tried_seconds REAL NOT NULL DEFAULT 0,
    UNIQUE (result_id, peer)
);
CREATE INDEX deliveries_by_state ON deliveries (state, peer, next_at);
CREATE TABLE commitments (
    transaction_uid TEXT PRIMARY KEY,
    peer TEXT NOT NULL,
    requested_at REAL NOT NULL,
    answered_at REAL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'complete', 'incomplete', 'expired'))
);
CREATE TABLE commitment_items (
    transaction_uid TEXT NOT NULL REFERENCES commitments (transaction_uid),
    delivery_id INTEGER NOT NULL REFERENCES deliveries (id),
    sop_instance_uid TEXT NOT NULL,
    failure_reason INTEGER,
    PRIMARY KEY (transaction_uid, delivery_id)
) WITHOUT ROWID;
CREATE TABLE audit_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    event TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL DEFAULT 0);
CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), boot TEXT NOT NULL, zero REAL NOT NULL);
""",
)
"""Scripts of ``usvit.files.Database``."""


class NodeDatabase(Database):
    """The open database of a node."""

    def __init__(self, path: Path, *, create: bool = False):
        """Open the database and bring it up to date.

        Args:
            path: the file.
            create: make it if it is missing.

        Raises:
            UsvitError: there is no database, it is damaged, or a newer version of usvit wrote it.
        """
        missing = f"There is no node in {path.parent}: {path.name} is missing. Start it with 'usvit node serve'."
        super().__init__(path, MIGRATIONS, create=create, missing=missing)
        self._zero: float | None = None
        """The time of the node is this plus the monotonic clock; None: that of the machine."""
        self._has_zero = False

    def now(self) -> float:
        """Return the time of the node in seconds since 1970, which goes on evenly if somebody sets the clock.

        It is the clock at the start of the service plus the time since then. All processes of the node, and commands
        beside it, have the same time until the machine starts again.
        """
        if not self._has_zero:
            self._has_zero = True
            row = self.one("SELECT boot, zero FROM clock")
            boot = _boot()
            self._zero = row["zero"] if row is not None and boot and row["boot"] == boot else None
        return time.time() if self._zero is None else self._zero + time.monotonic()

    def set_clock(self) -> None:
        """Let the time of the node begin with the present clock; called when the service starts."""
        zero = time.time() - time.monotonic()
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", (_boot(), zero))
        self._zero, self._has_zero = zero, True

    def clamp_stamps(self, longest_wait: float) -> None:
        """Move stamps that lie in the future to now: they were written while the clock was ahead.

        Args:
            longest_wait: seconds for which the next attempt of a delivery may lie in the future.
        """
        now = self.now()
        with self.transaction() as connection:
            for table, column, most in (
                ("studies", "first_at", now),
                ("studies", "last_at", now),
                ("studies", "done_at", now),
                ("results", "created_at", now),
                ("deliveries", "first_sent_at", now),
                ("deliveries", "done_at", now),
                ("deliveries", "next_at", now + longest_wait),
                ("commitments", "requested_at", now),
            ):
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} > ?", (most, most))


def add_event(connection: sqlite3.Connection, event: str, **fields: Any) -> None:
    """Add an event to the audit log, in the transaction of what it tells about.

    Args:
        connection: connection with an open transaction.
        event: what happened, such as ``received``.
        fields: pseudonyms, AE titles, hashes, counts and decisions; never a name, an id or a UID of a patient.
    """
    data = json.dumps(fields, ensure_ascii=True, allow_nan=False)
    connection.execute("INSERT INTO audit_events (time, event, data) VALUES (?, ?, ?)", (_now_text(), event, data))


def count(connection: sqlite3.Connection, name: str, by: int = 1) -> None:
    """Add to a counter of the metrics."""
    connection.execute(
        "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value", (name, by)
    )


def _boot() -> str:
    """Return an id of the present start of the machine, since which the monotonic clock runs; "" if there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
