"""A SQLite database in one file, which several processes may open; a transaction survives a crash of the machine."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.files.write import DiskError, refuse_link

_BUSY_SECONDS = 60.0
"""Time for which a transaction waits for those of other processes."""


class Database:
    """An open database in WAL mode with ``synchronous=FULL``, which only the owner of its file can read.

    All threads of a process share one connection, which one of them uses at a time.
    """

    def __init__(self, path: Path, migrations: Sequence[str], *, create: bool = False, missing: str = ""):
        """Open the database and bring it up to date.

        Args:
            path: the file.
            migrations: scripts that bring a database from version n (``PRAGMA user_version``) to n + 1. A released
                script never changes.
            create: make the file if it is missing.
            missing: what the error says if the file is missing.

        Raises:
            UsvitError: there is no database, it is damaged, or a newer version of usvit wrote it.
        """
        refuse_link(path)
        if not create and not path.is_file():
            raise UsvitError(missing or f"There is no database {path}.")
        self.path, self._migrations = path, migrations
        self._lock = threading.RLock()
        try:
            if create and not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            self.connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            """In autocommit mode; rows are mappings. Use it within ``transaction``."""
            self.connection.row_factory = sqlite3.Row
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                self.connection.execute(f"PRAGMA {pragma}")
            self._migrate()
        except sqlite3.DatabaseError as error:
            if "full" in str(error):
                raise DiskError(f"There is no room on the disk for the database {path}. Free some space.") from error
            raise UsvitError(f"The database {path} cannot be used: {error}. Restore it from a backup.") from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction that writes; it is rolled back if the block raises."""
        with self._lock:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, values: Any = ()) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with self._lock:
            return self.connection.execute(query, values).fetchall()

    def one(self, query: str, values: Any = ()) -> sqlite3.Row | None:
        """Return the first row of a query."""
        found = self.rows(query, values)
        return found[0] if found else None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self.connection.close()

    def _migrate(self) -> None:
        connection = self.connection
        if self._version() > len(self._migrations):
            raise UsvitError(
                f"The database {self.path} was written by another version of usvit (schema {self._version()}, and this "
                f"version reads {len(self._migrations)}). Install that version, or begin with a new folder."
            )
        if self._version() == len(self._migrations):
            return
        connection.execute("BEGIN IMMEDIATE")  # another process may migrate at the same time
        try:
            for number in range(self._version(), len(self._migrations)):
                for statement in self._migrations[number].split(";"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version={number + 1}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _version(self) -> int:
        return int(self.connection.execute("PRAGMA user_version").fetchone()[0])


def insert(connection: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> int:
    """Insert a row, and return its id."""
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    found = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(columns.values())).lastrowid
    assert found is not None
    return found
