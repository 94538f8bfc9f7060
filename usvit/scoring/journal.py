"""The journal of a scoring job, from which an interrupted job resumes without losing a row.

It is a SQLite database in the output folder while the job runs, with one transaction per batch. It holds pseudonyms
only. The paths of the files are in an unnamed temporary database, which SQLite keeps in memory.
"""

import itertools
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from usvit.errors import UsvitError
from usvit.files import refuse_link
from usvit.scoring.items import Done, Failure, Row, ScoringItem

T = TypeVar("T")
PAGE = 256
"""Number of items or rows fetched at once."""
PENDING, SCORED, FINISHED = 0, 1, 2
"""States of an item: not completely scored; scored; scored, and its products are written."""

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
    """The content of one transaction."""

    rows: list[tuple[int, int, Row, bytes | None]] = field(default_factory=list)
    """(seq, frame, columns of ``scores.csv``, thumbnail)."""
    failures: list[tuple[int, Failure, Row]] = field(default_factory=list)
    """(seq, failure, ``path`` and ``reason`` of ``failures.csv``)."""
    ended: list[int] = field(default_factory=list)
    """Items that are complete."""


class Journal:
    """An open journal; ``open_journal`` creates it."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection
        # The readers fetch items in their own thread while batches are committed.
        self._lock = threading.RLock()  # reentrant: items are looked up while others are registered

    def register(self, items: Iterable[tuple[str, ScoringItem]]) -> None:
        """Number the items in the order in which they were found.

        Items that are already registered keep their number; new ones are numbered after them.

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
                place = json.dumps(asdict(item))  # escapes bytes of a name that are not UTF-8
                connection.execute("INSERT INTO place.work VALUES (?, ?)", (last if known is None else known[0], place))

    def vanished(self, state: int) -> list[int]:
        """Return the items in this state that an earlier process found and this one did not."""
        query = "SELECT seq FROM items WHERE state = ? AND seq NOT IN (SELECT seq FROM place.work) ORDER BY seq"
        return [seq for (seq,) in self._connection.execute(query, (state,))]

    def note_gone(self, seqs: Iterable[int]) -> None:
        """Make ``waiting`` yield these vanished items too, with the problem ``not_found``."""
        place = json.dumps(asdict(ScoringItem("", "", problem="not_found")))
        with self._writing() as connection:
            connection.executemany("INSERT INTO place.work VALUES (?, ?)", [(seq, place) for seq in seqs])

    def waiting(self, state: int) -> Iterator[tuple[int, ScoringItem]]:
        """Yield the items in this state, in order. They are fetched in pages, so that memory stays bounded."""
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
                yield seq, ScoringItem(**json.loads(item))
            after = page[-1][0]

    def file_sha256(self, item_id: str) -> str | None:
        """Return the hash of the file from which an item was scored; None if it has no row yet."""
        query = "SELECT data FROM rows JOIN items USING (seq) WHERE item_id = ? LIMIT 1"
        with self._lock:
            found = self._connection.execute(query, (item_id,)).fetchone()
        return None if found is None else str(json.loads(found[0])["file_sha256"])

    def done(self, seq: int) -> Done:
        """Return the part of an item that is already in the journal."""
        with self._lock:
            found = self._connection.execute("SELECT data FROM rows WHERE seq = ? LIMIT 1", (seq,)).fetchone()
        return Done(self.frames_done(seq), None if found is None else str(json.loads(found[0])["file_sha256"]))

    def frames_done(self, seq: int) -> set[int | None]:
        """Return the frames of an item that are already in the journal, scored or failed."""
        query = "SELECT frame FROM rows WHERE seq = ? UNION ALL SELECT frame FROM failures WHERE seq = ?"
        with self._lock:
            return {frame for (frame,) in self._connection.execute(query, (seq, seq))}

    def commit(self, batch: Batch) -> None:
        """Add a batch in one transaction."""
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
        """Record (kind, file, error) of each product of an item, and mark the item as finished."""
        with self._writing() as connection:
            rows = [(seq, *product) for product in products]
            connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)
            connection.execute("UPDATE items SET state = ? WHERE seq = ?", (FINISHED, seq))

    def counts(self) -> dict[str, int]:
        """Return the numbers of ``items``, ``done`` items and ``frames``."""
        one = self._connection.execute("SELECT count(*), coalesce(sum(state > 0), 0) FROM items").fetchone()
        frames = self._connection.execute("SELECT count(*) FROM rows").fetchone()[0]
        return {"items": one[0], "done": one[1], "frames": frames}

    def rows_of(self, seq: int) -> list[Row]:
        """Return the rows of an item, in the order of its frames."""
        query = "SELECT data FROM rows WHERE seq = ? ORDER BY frame"
        with self._lock:
            return [json.loads(data) for (data,) in self._connection.execute(query, (seq,))]

    def rows(self) -> Iterator[Row]:
        """Yield all rows, in the order of items and frames."""
        query = "SELECT data FROM rows JOIN items USING (seq) ORDER BY seq, frame"
        return (json.loads(data) for (data,) in self._connection.execute(query))

    def pool(self, unit_id: str, pool: Callable[[list[Row]], T]) -> dict[str, T]:
        """Let a function change the rows of each study or patient, in one transaction.

        Args:
            unit_id: column that names the unit; rows in which it is "" are left as they are.
            pool: takes the rows of a unit, in the order of items and frames, and changes them.

        Returns:
            Id of the unit -> what the function returned.
        """
        unit, found = f"json_extract(data, '$.{unit_id}')", {}
        with self._writing() as connection:
            connection.execute(f"CREATE INDEX IF NOT EXISTS rows_of_{unit_id} ON rows ({unit})")
            for (name,) in connection.execute(f"SELECT DISTINCT {unit} FROM rows WHERE {unit} != ''").fetchall():
                query = f"SELECT seq, frame, data FROM rows WHERE {unit} = ? ORDER BY seq, frame"
                own = [(seq, frame, json.loads(data)) for seq, frame, data in connection.execute(query, (name,))]
                found[name] = pool([row for *_, row in own])
                changed = [(json.dumps(row), seq, frame) for seq, frame, row in own]
                connection.executemany("UPDATE rows SET data = ? WHERE seq = ? AND frame = ?", changed)
        return found

    def has_sides(self) -> bool:
        """Return whether a row states the breast that its image shows."""
        query = "SELECT EXISTS (SELECT 1 FROM rows WHERE json_extract(data, '$.side') IS NOT NULL)"
        return bool(self._connection.execute(query).fetchone()[0])

    def failures(self) -> Iterator[Row]:
        """Yield all failures, in the order of items and frames."""
        query = "SELECT item_id, frame, code, data FROM failures JOIN items USING (seq) ORDER BY seq, frame"
        for item_id, frame, code, data in self._connection.execute(query):
            yield {"item_id": item_id, "frame": frame, "code": code, **json.loads(data)}

    def thumbnails(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield (item_id, frame, JPEG) of each row that has a thumbnail, in order."""
        query = (
            "SELECT item_id, frame, thumbnail FROM rows JOIN items USING (seq) WHERE thumbnail NOT NULL ORDER BY seq, "
            "frame"
        )
        yield from self._connection.execute(query)

    def without_thumbnail(self) -> int:
        """Return the number of rows without a thumbnail."""
        found = self._connection.execute("SELECT count(*) FROM rows WHERE thumbnail IS NULL").fetchone()
        return int(found[0])

    def products(self) -> Iterator[Row]:
        """Yield all products, in the order of items."""
        query = "SELECT item_id, kind, file, error FROM products JOIN items USING (seq) ORDER BY seq, kind, file"
        names = ("item_id", "kind", "file", "error")
        return (dict(zip(names, row, strict=True)) for row in self._connection.execute(query))

    def close(self) -> None:
        """Close the database file."""
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
    """Create a journal, or open an existing one.

    Raises:
        UsvitError: the disk is full, or the file is damaged.
    """
    for name in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        refuse_link(name)  # SQLite would follow the link
    try:
        connection = sqlite3.connect(path, check_same_thread=False)
        # Items name patients. Without this, SQLite could write them to a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # committed data survives a power failure
        connection.executescript(_TABLES)
        connection.execute("ATTACH DATABASE '' AS place")  # unnamed: deleted when closed, even if killed
        connection.execute("CREATE TABLE place.work (seq INTEGER PRIMARY KEY, item TEXT NOT NULL)")
    except sqlite3.DatabaseError as error:
        raise _explained(error) from error
    return Journal(connection)


def batched(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` values; the last may be shorter (``itertools.batched`` of Python 3.12)."""
    left = iter(values)
    while portion := list(itertools.islice(left, size)):
        yield portion


def _explained(error: sqlite3.DatabaseError) -> UsvitError:
    if "full" in str(error) or "I/O" in str(error):
        return UsvitError(
            "No space left on the disk of --out (or it cannot be written, or ulimit -f is too low). The completed "
            "results are kept: free some space and run the same command again to resume."
        )
    return UsvitError(
        f"The journal of the job in --out cannot be used ({error}). Restore the folder, or choose another --out."
    )
