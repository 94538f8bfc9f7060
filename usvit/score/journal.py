"""The journal of a scoring job: what is done, so that a killed job goes on where it was and loses no row.

SQLite in the output folder while the job runs, one transaction a batch. It holds pseudonyms alone; where the files lie
is in an unnamed temporary database, which SQLite keeps in memory.
"""

import itertools
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from usvit.errors import UsvitError
from usvit.files import refuse_link
from usvit.score.records import Done, Failure, Item

PAGE = 256
"""Items, or rows, fetched at once."""
PENDING, SCORED, FINISHED = 0, 1, 2
"""States of an item: nothing or not all of it is done; its rows are there; its products, too."""

_TABLES = """
CREATE TABLE IF NOT EXISTS items (seq INTEGER PRIMARY KEY, item_id TEXT NOT NULL UNIQUE, state INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rows (
    seq INTEGER NOT NULL, frame INTEGER NOT NULL, data TEXT NOT NULL, thumbnail BLOB, PRIMARY KEY (seq, frame)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS failures (
    seq INTEGER NOT NULL, frame INTEGER, code TEXT NOT NULL, data TEXT NOT NULL, UNIQUE (seq, frame)
);
CREATE TABLE IF NOT EXISTS products (seq INTEGER NOT NULL, kind TEXT NOT NULL, file TEXT, error TEXT);
"""


@dataclass
class Batch:
    """What one transaction adds."""

    rows: list[tuple[int, int, dict[str, Any], bytes | None]] = field(default_factory=list)
    """(seq, frame, columns of ``scores.csv``, thumbnail)."""
    failures: list[tuple[int, Failure, dict[str, Any]]] = field(default_factory=list)
    """(seq, failure, columns of ``failures.csv`` that ids make)."""
    ended: list[int] = field(default_factory=list)
    """Items of which nothing more comes."""


class Journal:
    """See ``open_journal``."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection
        # Readers take items in a thread of their own while batches are committed.
        self._lock = threading.RLock()  # looked up while items are registered

    def register(self, items: Iterable[tuple[str, Item]]) -> None:
        """Number the items in the order in which they were found; known ones keep their number, new ones come last.

        Args:
            items: (item_id, item), each id once.
        """
        with self._writing() as connection:
            last = connection.execute("SELECT coalesce(max(seq), -1) FROM items").fetchone()[0]
            for item_id, item in items:
                known = connection.execute("SELECT seq FROM items WHERE item_id = ?", (item_id,)).fetchone()
                if known is None:
                    last += 1
                    connection.execute("INSERT INTO items VALUES (?, ?, ?)", (last, item_id, PENDING))
                place = json.dumps(asdict(item))  # escapes what is no UTF-8 in a name
                connection.execute("INSERT INTO place.work VALUES (?, ?)", (last if known is None else known[0], place))

    def vanished(self, state: int) -> list[int]:
        """Items in this state that an earlier process found and this one does not."""
        query = "SELECT seq FROM items WHERE state = ? AND seq NOT IN (SELECT seq FROM place.work) ORDER BY seq"
        return [seq for (seq,) in self._connection.execute(query, (state,))]

    def note_gone(self, seqs: Iterable[int]) -> None:
        """Let ``waiting`` hand out these vanished items all the same, with the problem ``not_found``."""
        place = json.dumps(asdict(Item("", "", problem="not_found")))
        with self._writing() as connection:
            connection.executemany("INSERT INTO place.work VALUES (?, ?)", [(seq, place) for seq in seqs])

    def waiting(self, state: int) -> Iterator[tuple[int, Item]]:
        """Items in this state, in their order, in pages: their number does not matter for memory."""
        after = -1
        query = (
            "SELECT seq, item FROM items JOIN place.work USING (seq) WHERE state = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        while True:
            with self._lock:
                page = self._connection.execute(query, (state, after, PAGE)).fetchall()
            if not page:
                return
            for seq, item in page:
                yield seq, Item(**json.loads(item))
            after = page[-1][0]

    def file_sha256(self, item_id: str) -> str | None:
        """Of the file that an item's rows were made of; None where it has no row yet."""
        query = "SELECT data FROM rows JOIN items USING (seq) WHERE item_id = ? LIMIT 1"
        with self._lock:
            found = self._connection.execute(query, (item_id,)).fetchone()
        return None if found is None else str(json.loads(found[0])["file_sha256"])

    def done(self, seq: int) -> Done:
        """What of an item is in the journal already."""
        with self._lock:
            found = self._connection.execute("SELECT data FROM rows WHERE seq = ? LIMIT 1", (seq,)).fetchone()
        return Done(self.frames_done(seq), None if found is None else str(json.loads(found[0])["file_sha256"]))

    def frames_done(self, seq: int) -> set[int | None]:
        """Frames of an item that are in the journal already, scored or failed."""
        query = "SELECT frame FROM rows WHERE seq = ? UNION ALL SELECT frame FROM failures WHERE seq = ?"
        with self._lock:
            return {frame for (frame,) in self._connection.execute(query, (seq, seq))}

    def commit(self, batch: Batch) -> None:
        """Add a batch, wholly or not at all."""
        with self._writing() as connection:
            connection.executemany(
                "INSERT INTO rows VALUES (?, ?, ?, ?)",
                [(seq, frame, json.dumps(data), thumbnail) for seq, frame, data, thumbnail in batch.rows],
            )
            connection.executemany(
                "INSERT INTO failures VALUES (?, ?, ?, ?)",
                [(seq, one.frame, one.code, json.dumps(data)) for seq, one, data in batch.failures],
            )
            connection.executemany("UPDATE items SET state = ? WHERE seq = ?", [(SCORED, seq) for seq in batch.ended])

    def add_products(self, seq: int, products: Iterable[tuple[str, str | None, str | None]]) -> None:
        """Note (kind, file, error) of each product of an item, and that it is finished."""
        with self._writing() as connection:
            rows = [(seq, *product) for product in products]
            connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)
            connection.execute("UPDATE items SET state = ? WHERE seq = ?", (FINISHED, seq))

    def counts(self) -> dict[str, int]:
        """``items``, ``done`` and ``frames``."""
        one = self._connection.execute("SELECT count(*), coalesce(sum(state > 0), 0) FROM items").fetchone()
        frames = self._connection.execute("SELECT count(*) FROM rows").fetchone()[0]
        return {"items": one[0], "done": one[1], "frames": frames}

    def rows_of(self, seq: int) -> list[dict[str, Any]]:
        """An item's rows, in the order of its frames."""
        query = "SELECT data FROM rows WHERE seq = ? ORDER BY frame"
        with self._lock:
            return [json.loads(data) for (data,) in self._connection.execute(query, (seq,))]

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows, in the order of items and frames."""
        query = "SELECT data FROM rows JOIN items USING (seq) ORDER BY seq, frame"
        return (json.loads(data) for (data,) in self._connection.execute(query))

    def failures(self) -> Iterator[dict[str, Any]]:
        """All failures, in the order of items and frames."""
        query = "SELECT item_id, frame, code, data FROM failures JOIN items USING (seq) ORDER BY seq, frame"
        for item_id, frame, code, data in self._connection.execute(query):
            yield {"item_id": item_id, "frame": frame, "code": code, **json.loads(data)}

    def thumbnails(self) -> Iterator[tuple[str, int, bytes]]:
        """(item_id, frame, JPEG) of each row that has one, in their order."""
        query = (
            "SELECT item_id, frame, thumbnail FROM rows JOIN items USING (seq) WHERE thumbnail NOT NULL ORDER BY seq, "
            "frame"
        )
        yield from self._connection.execute(query)

    def without_thumbnail(self) -> int:
        """Rows that have no thumbnail."""
        found = self._connection.execute("SELECT count(*) FROM rows WHERE thumbnail IS NULL").fetchone()
        return int(found[0])

    def products(self) -> Iterator[dict[str, Any]]:
        """All products, in the order of items."""
        query = "SELECT item_id, kind, file, error FROM products JOIN items USING (seq) ORDER BY seq, kind, file"
        names = ("item_id", "kind", "file", "error")
        return (dict(zip(names, row, strict=True)) for row in self._connection.execute(query))

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                with self._connection:  # commits, or rolls back
                    yield self._connection
            except sqlite3.OperationalError as error:
                raise _explained(error) from error


def open_journal(path: Path) -> Journal:
    """Make a journal, or open the one that is there.

    Raises:
        UsvitError: the disk is full, or the file is damaged.
    """
    for name in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        refuse_link(name)  # SQLite would follow it
    try:
        connection = sqlite3.connect(path, check_same_thread=False)
        # Items name patients: what of them SQLite does not hold in memory would be written to a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # what is committed survives a loss of power
        connection.executescript(_TABLES)
        connection.execute("ATTACH DATABASE '' AS place")  # unnamed: deleted when it is closed, even by a kill
        connection.execute("CREATE TABLE place.work (seq INTEGER PRIMARY KEY, item TEXT NOT NULL)")
    except sqlite3.DatabaseError as error:
        raise _explained(error) from error
    return Journal(connection)


T = TypeVar("T")


def batched(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of ``size`` values, the last one shorter (``itertools.batched`` of Python 3.12)."""
    left = iter(values)
    while portion := list(itertools.islice(left, size)):
        yield portion


def _explained(error: sqlite3.DatabaseError) -> UsvitError:
    if "full" in str(error) or "I/O" in str(error):
        return UsvitError(
            "No space left on the disk of --out (or it cannot be written, or ulimit -f is too low). "
            "Nothing that was scored is lost: free some space and give the same command again to resume."
        )
    return UsvitError(
        f"The journal of the job in --out cannot be used ({error}). Restore the folder, or choose another --out."
    )
