"""Retention: images and results are deleted when they are old, or when the folder is too large.

Only what the node is finished with is deleted. An image goes when its study is scored or left alone, and when all
results of the study have arrived at their peers; a result goes when it has arrived itself. A result that a peer was
asked to commit itself to has arrived when the peer has done so. What could not be delivered is kept, whatever its age.

The rows of deleted images stay in the database without their attributes, so that the same image is recognised when it
is sent again. Each deletion is committed before the files go; what a crash in
between leaves is removed at the next start or run.
"""

import contextlib
import shutil
import sqlite3
from dataclasses import dataclass

from usvit.node.config.settings import NodeConfig
from usvit.node.database import NodeDatabase, add_event, count
from usvit.node.watching.status import folder_bytes

_OVER_LIMIT_SECONDS = 3600.0
"""Time after which it is audited again that the folder is too large and nothing may be deleted."""
_TRASH = ".expired"
"""Folder in ``results`` into which a result is moved before it is deleted."""

_FINISHED = "studies.state IN ('done', 'left_alone', 'failed')"
_HAS_IMAGES = "EXISTS (SELECT 1 FROM instances WHERE study_id = studies.id AND path IS NOT NULL AND state != 'expired')"


@dataclass
class _Expired:
    """What ``apply_retention`` has deleted."""

    n_images: int = 0
    n_results: int = 0
    n_bytes: int = 0


def apply_retention(config: NodeConfig, database: NodeDatabase, now: float | None = None) -> _Expired:
    """Delete images and results that are older than the configuration allows, or for which there is no room.

    Args:
        config: configuration of the node.
        database: its database.
        now: time in seconds since 1970; None: that of the node.

    Returns:
        What was deleted.

    Raises:
        OSError: a file cannot be deleted.
    """
    return _Retention(config, database, database.now() if now is None else now).run()


class _Retention:
    def __init__(self, config: NodeConfig, database: NodeDatabase, now: float):
        self._folder, self._limits = config.folder, config.retention
        self._database, self._now = database, now
        self._committing = [name for name, peer in config.peers.items() if peer.storage_commitment]
        self._done = _Expired()

    def run(self) -> _Expired:
        shutil.rmtree(self._folder / "results" / _TRASH, ignore_errors=True)  # of a run that was interrupted
        for study in self._finished_studies(before=self._now - self._limits.images_days * 86400):
            self._expire_images(study, "age")
        for study, revision in self._finished_results(before=self._now - self._limits.results_days * 86400):
            self._expire_results(study, revision, "age")
        self._remove_tables(before=self._now - self._limits.results_days * 86400)
        if self._limits.max_gb is not None:
            self._shrink(int(self._limits.max_gb * 1e9))
        return self._done

    def _shrink(self, most: int) -> None:
        """Delete the oldest images, then the oldest results, until the folder is small enough."""
        (images,) = self._database.rows("SELECT coalesce(sum(n_bytes), 0) FROM instances WHERE state != 'expired'")[0]
        size = images + folder_bytes(self._folder / "results")
        before = self._done.n_bytes
        for study in self._finished_studies(before=self._now):
            if size - (self._done.n_bytes - before) <= most:
                return
            self._expire_images(study, "size")
        for study, revision in self._finished_results(before=self._now):
            if size - (self._done.n_bytes - before) <= most:
                return
            self._expire_results(study, revision, "size")
        if size - (self._done.n_bytes - before) > most:
            self._tell_over_limit(size - (self._done.n_bytes - before), most)

    def _finished_studies(self, before: float) -> list[int]:
        """Return the studies whose images may go, oldest first."""
        rows = self._database.rows(
            f"SELECT id FROM studies WHERE {_FINISHED} AND last_at <= ? AND {_HAS_IMAGES} AND {self._settled()} "
            "ORDER BY last_at, id",
            (before, *self._committing),
        )
        return [row["id"] for row in rows]

    def _finished_results(self, before: float) -> list[tuple[int, int]]:
        """Return the study and revision of the results that may go, oldest first."""
        rows = self._database.rows(
            "SELECT study_id, results.revision, max(max(created_at, coalesce((SELECT max(deliveries.done_at) "
            "FROM deliveries WHERE result_id = results.id), 0))) AS settled_at FROM results "
            f"JOIN studies ON studies.id = study_id WHERE path IS NOT NULL AND {_FINISHED} "
            f"AND {self._settled('results.revision')} GROUP BY study_id, results.revision HAVING settled_at <= ? "
            "ORDER BY settled_at, study_id",
            (*self._committing, before),
        )
        return [(row["study_id"], row["revision"]) for row in rows]

    def _settled(self, revision: str | None = None) -> str:
        """Return the condition that all results of a study, or of one revision, have arrived at their peers."""
        of_revision = "" if revision is None else f" AND own.revision = {revision}"
        committing = ", ".join("?" * len(self._committing))
        return (
            "NOT EXISTS (SELECT 1 FROM results AS own JOIN deliveries ON result_id = own.id WHERE own.study_id = "
            f"studies.id{of_revision} AND (deliveries.state IN ('waiting', 'gave_up') OR (deliveries.state = 'sent' "
            f"AND peer IN ({committing}))))"
        )

    def _expire_images(self, study_id: int, why: str) -> None:
        with self._database.transaction() as connection:
            study = self._still(connection, study_id)  # an image may have arrived in between
            if study is None:
                return
            rows = connection.execute(
                "SELECT id, path, n_bytes FROM instances WHERE study_id = ? AND path IS NOT NULL "
                "AND state IN ('scored', 'failed', 'ignored')",
                (study_id,),
            ).fetchall()
            connection.executemany(
                "UPDATE instances SET state = 'expired', path = NULL, attributes = '{}' WHERE id = ?",
                [(row["id"],) for row in rows],
            )
            if rows:
                add_event(connection, "images_expired", study=study["pseudonym"], images=len(rows), reason=why)
                count(connection, "images_expired", len(rows))
        folders = set()
        for row in rows:
            path = self._folder / row["path"]
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            with contextlib.suppress(OSError):  # another image has arrived
                folder.rmdir()
        self._done.n_images += len(rows)
        self._done.n_bytes += sum(row["n_bytes"] for row in rows)

    def _expire_results(self, study_id: int, revision: int, why: str) -> None:
        with self._database.transaction() as connection:
            study = self._still(connection, study_id, str(int(revision)))
            if study is None:
                return
            folder = self._folder / "results" / study["pseudonym"] / str(revision)
            size = folder_bytes(folder)
            number = connection.execute(
                "UPDATE results SET path = NULL WHERE study_id = ? AND revision = ? AND path IS NOT NULL",
                (study_id, revision),
            ).rowcount
            add_event(
                connection,
                "results_expired",
                study=study["pseudonym"],
                revision=revision,
                results=number,
                reason=why,
            )
            count(connection, "results_expired", number)
            trash = self._folder / "results" / _TRASH
            trash.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # of a run that was interrupted
                folder.rename(trash / f"{study['pseudonym']}-{revision}")
        shutil.rmtree(trash, ignore_errors=True)
        with contextlib.suppress(OSError):  # other revisions are there
            folder.parent.rmdir()
        self._done.n_results += number
        self._done.n_bytes += size

    def _remove_tables(self, before: float) -> None:
        """Remove the folders of studies that have tables, but no objects that could be sent."""
        rows = self._database.rows(
            "SELECT pseudonym FROM studies WHERE state = 'done' AND done_at <= ? AND NOT EXISTS (SELECT 1 FROM results "
            "WHERE study_id = studies.id AND path IS NOT NULL)",
            (before,),
        )
        for (pseudonym,) in rows:
            shutil.rmtree(self._folder / "results" / pseudonym, ignore_errors=True)

    def _still(self, connection: sqlite3.Connection, study_id: int, revision: str | None = None) -> sqlite3.Row | None:
        """Return the row of a study if what was found about it still holds in the transaction."""
        row: sqlite3.Row | None = connection.execute(
            f"SELECT * FROM studies WHERE id = ? AND {_FINISHED} AND {self._settled(revision)}",
            (study_id, *self._committing),
        ).fetchone()
        return row

    def _tell_over_limit(self, size: int, most: int) -> None:
        row = self._database.one(
            "SELECT strftime('%s', time) AS at FROM audit_events WHERE event = 'retention_over_limit' ORDER BY id DESC"
        )
        if row is not None and self._now - float(row["at"]) < _OVER_LIMIT_SECONDS:
            return
        with self._database.transaction() as connection:
            add_event(connection, "retention_over_limit", bytes=size, limit=most)
