"""The sender: delivers the results of ``deliveries``, in a process of its own with one thread for each peer.

The queue is in the database, so that it survives any end of the process. The results of one study reach a peer in their
order. An attempt that fails is repeated after a time that doubles, without jitter, up to a longest time. What was
answered is committed before the next object is sent: an object is sent again only if the answer was lost, and then it
has the same SOP instance UID and the same bytes.

Three kinds of failure are told apart. If a peer cannot be reached, is busy or is out of resources, everything for it
waits, until a later attempt or a new result finds that it stores again. If it refuses one object, the later results of
the same study wait behind this object for ``HOLDS`` attempts, and then pass it. An object that was tried for
``send.give_up_hours`` is given up, and audited.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.node.child_process import report_ready
from usvit.node.config.settings import NodeConfig, PeerConfig, SendConfig
from usvit.node.database import NodeDatabase, add_event, count
from usvit.node.sending.answers import OUT_OF_RESOURCES, Answer, Outgoing, PeerUnavailable
from usvit.node.sending.commitment import CommitmentRequests
from usvit.node.sending.store_scu import StoreScu, fits_one_association
from usvit.node.sending.stow import StowClient

POLL_SECONDS = 0.5
_MOST_AT_ONCE = 200
"""Objects that are sent over one association."""
HOLDS = 5
"""Attempts for which an object that a peer refuses holds up the later results of its study."""
_NOT_OFFERED = -1
"""``last_status`` of an object that could not be offered, because the peer does not accept its SOP class."""
_LONGEST_ERROR_WAIT = 30.0

_WAITING = """
SELECT d.id, d.attempts, d.tried_seconds, d.next_at, d.first_sent_at, d.last_status, r.kind, r.path, r.sha256,
       r.sop_instance_uid, r.sop_class_uid, r.created_at, r.study_id, s.pseudonym AS study
FROM deliveries d JOIN results r ON r.id = d.result_id JOIN studies s ON s.id = r.study_id
WHERE d.peer = ? AND d.state = 'waiting' ORDER BY d.id
"""


def run_sender(config: NodeConfig, stop: threading.Event) -> None:
    """Deliver until ``stop`` is set; the main function of the process. In a dry run, nothing is sent."""
    database = NodeDatabase(config.database)
    threads = [
        threading.Thread(target=_serve_peer, args=(config, name, database, stop), name=f"peer-{name}")
        for name in sorted({name for rule in config.rules for name in rule.send_to})
        if not config.send.dry_run
    ]
    for thread in threads:
        thread.start()
    report_ready()
    stop.wait()
    for thread in threads:
        thread.join()
    database.close()


def _serve_peer(config: NodeConfig, name: str, database: NodeDatabase, stop: threading.Event) -> None:
    delivery = PeerDelivery(config, name, database)
    wait = POLL_SECONDS
    while not stop.is_set():
        try:
            worked = delivery.work(stop)
            wait = POLL_SECONDS
        except Exception as error:  # such as a full disk: a thread that died would leave its peer without results
            wait, worked = min(2 * wait, _LONGEST_ERROR_WAIT), False
            with contextlib.suppress(sqlite3.Error), database.transaction() as connection:
                add_event(connection, "sender_failed", peer=name, error=type(error).__name__)
        if not worked:
            stop.wait(wait)


@dataclass(frozen=True)
class _Job:
    """A waiting delivery."""

    row: sqlite3.Row
    file: Outgoing


class PeerDelivery:
    """Delivery to one peer.

    Args:
        config: configuration of the node.
        name: name of the peer.
        database: database of the node.
    """

    def __init__(self, config: NodeConfig, name: str, database: NodeDatabase):
        self._config, self._name, self._database = config, name, database
        self._peer: PeerConfig = config.peers[name]
        self._may_be_down = True
        """Results may wait because the peer could not be reached, in an earlier process as well."""
        self._failed_at: float | None = None
        """Monotonic time at which the peer failed; None if it has stored something since."""
        self._calling = config.receive.ae_title if config.receive is not None else "USVIT"
        self._commitment = CommitmentRequests(config, name, database) if self._peer.storage_commitment else None

    def work(self, stop: threading.Event) -> bool:
        """Send what is due, and ask for storage commitment; return whether there was anything to do.

        Args:
            stop: ends the work after the current object.
        """
        jobs = list(self._due())
        asking = self._commitment is not None and self._commitment.is_due()
        if not jobs and not asking:
            return False
        try:
            files = [job.file for job in jobs[: fits_one_association([job.file for job in jobs])]]
            with self._connection(files) as connected:
                self._send_all(connected, jobs[: len(files)], stop)
                if self._commitment is not None and isinstance(connected, StoreScu):
                    self._commitment.ask(connected.association)
        except PeerUnavailable as error:
            self._peer_failed(jobs, str(error))
        except UsvitError as error:  # a token or certificate that cannot be read, whose path it names
            self._peer_failed(jobs, " ".join(str(error).split())[:300])
        return True

    def _connection(self, files: list[Outgoing]) -> StoreScu | StowClient:
        if self._peer.dicomweb is not None:
            return StowClient(self._peer)
        handler = None if self._commitment is None else self._commitment.on_event_report
        return StoreScu(
            self._peer,
            files,
            calling=self._calling,
            commitment=self._commitment is not None,
            on_event_report=handler,
        )

    def _due(self) -> Iterator[_Job]:
        """Yield the deliveries that may be sent now, in order; those that never can be are given up."""
        now = self._database.now()
        held: set[int] = set()
        n_found = 0
        for row in self._database.rows(_WAITING, (self._name,)):
            if row["study_id"] in held:
                continue
            if row["next_at"] > now:
                if not _may_be_passed(row):
                    held.add(row["study_id"])
                continue
            if row["tried_seconds"] > self._config.send.give_up_hours * 3600:
                self._give_up(row, "no attempt succeeded in time")
                continue
            file = self._file_of(row)
            if file is None:
                continue
            yield _Job(row, file)
            n_found += 1
            if n_found == _MOST_AT_ONCE:
                return

    def _file_of(self, row: sqlite3.Row) -> Outgoing | None:
        """Return the file of a delivery; None if it is gone or is not what was written, and then it is given up."""
        path = None if row["path"] is None else Path(self._config.folder / row["path"])
        try:
            if path is None or sha256_of_file(path) != row["sha256"]:
                self._give_up(row, "the file of the result is gone" if path is None else "the file has changed")
                return None
            return Outgoing.of(path)
        except (FileNotFoundError, UsvitError, ValueError):
            self._give_up(row, "the file of the result is gone")
            return None

    def _send_all(self, connected: StoreScu | StowClient, jobs: list[_Job], stop: threading.Event) -> None:
        """Send objects one after the other; each answer is committed before the next object is sent."""
        held: set[int] = set()
        for job in jobs:
            if stop.is_set():
                return
            if job.row["study_id"] in held:
                continue
            self._begin(job.row)
            answer = connected.send(job.file)
            self._conclude(job.row, answer)
            if answer.stored:
                self._failed_at = None
                if self._may_be_down:
                    self._release()
            if answer.passing:
                raise PeerUnavailable(answer.error)
            if not answer.stored and job.row["attempts"] + 1 < HOLDS:
                held.add(job.row["study_id"])

    def _release(self) -> None:
        """End the wait of everything that waits because the peer could not be reached: it stores objects again."""
        self._may_be_down = False
        now = self._database.now()
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE deliveries SET next_at = ? WHERE peer = ? AND state = 'waiting' AND last_status IS NULL "
                "AND next_at > ?",
                (now, self._name, now),
            )

    def _begin(self, row: sqlite3.Row) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE deliveries SET first_sent_at = coalesce(first_sent_at, ?) WHERE id = ?",
                (self._database.now(), row["id"]),
            )

    def _conclude(self, row: sqlite3.Row, answer: Answer) -> None:
        now, attempts = self._database.now(), row["attempts"] + 1
        told: dict[str, object] = {"kind": row["kind"], "sha256": row["sha256"], "attempts": attempts}
        status = _NOT_OFFERED if answer.status is None else answer.status
        if answer.status is not None:
            told["status"] = answer.status
        with self._database.transaction() as connection:
            if answer.stored:
                done = None if self._commitment is not None else now
                connection.execute(
                    "UPDATE deliveries SET state = 'sent', attempts = ?, done_at = ?, last_status = ?, "
                    "last_error = NULL WHERE id = ?",
                    (attempts, done, answer.status, row["id"]),
                )
                self._tell(connection, "delivered_with_warning" if answer.warning else "delivered", row, **told)
                count(connection, "deliveries_sent")
            else:
                wait = wait_after(self._config.send, attempts)
                connection.execute(
                    "UPDATE deliveries SET attempts = ?, tried_seconds = tried_seconds + ?, next_at = ?, "
                    "last_status = ?, last_error = ? WHERE id = ?",
                    (attempts, wait, now + wait, status, answer.error, row["id"]),
                )
                self._tell(connection, "delivery_failed", row, reason=answer.error, **told)
                count(connection, "deliveries_failed")

    def _peer_failed(self, jobs: list[_Job], reason: str) -> None:
        """Let everything for the peer wait. The first delivery that is still waiting counts the attempts."""
        now = self._database.now()
        self._may_be_down = True
        tried, self._failed_at = self._time_tried(), time.monotonic()
        ids = [job.row["id"] for job in jobs]
        with self._database.transaction() as connection:
            first = connection.execute(
                "SELECT id, attempts, next_at FROM deliveries WHERE peer = ? AND state = 'waiting' "
                f"AND id IN ({', '.join('?' * len(ids))}) ORDER BY id LIMIT 1",
                (self._name, *ids),
            ).fetchone()
            if first is not None:
                refused = first["next_at"] > now  # this attempt is counted already
                attempts = first["attempts"] + (not refused)
                later = now + wait_after(self._config.send, attempts)
                connection.execute(
                    "UPDATE deliveries SET attempts = ?, last_error = ? WHERE id = ?", (attempts, reason, first["id"])
                )
                connection.execute(
                    "UPDATE deliveries SET next_at = ?, last_error = ? "
                    "WHERE peer = ? AND state = 'waiting' AND next_at < ?",
                    (later, reason, self._name, later),
                )
            connection.execute(
                "UPDATE deliveries SET tried_seconds = tried_seconds + min(?, max(0, ? - (SELECT created_at FROM "
                "results WHERE results.id = result_id))) WHERE peer = ? AND state = 'waiting'",
                (tried, now, self._name),
            )
            if self._commitment is not None:
                self._commitment.postpone(now)
            add_event(connection, "peer_unavailable", peer=self._name, reason=reason)
            count(connection, "peer_failures")

    def _time_tried(self) -> float:
        """Return the time since the peer failed before; 0 if it has stored something since, or with the process.

        What is given up has been tried for so long: a clock that jumps, and a machine that was off, count for nothing.
        """
        return 0.0 if self._failed_at is None else time.monotonic() - self._failed_at

    def _give_up(self, row: sqlite3.Row, reason: str) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE deliveries SET state = 'gave_up', done_at = ?, last_error = ? WHERE id = ?",
                (self._database.now(), reason, row["id"]),
            )
            self._tell(connection, "delivery_gave_up", row, kind=row["kind"], sha256=row["sha256"], reason=reason)
            count(connection, "deliveries_gave_up")

    def _tell(self, connection: sqlite3.Connection, event: str, row: sqlite3.Row, **fields: Any) -> None:
        add_event(connection, event, study=row["study"], peer=self._name, **fields)


def wait_after(settings: SendConfig, attempts: int) -> float:
    """Return the seconds before the next attempt after ``attempts`` failed ones: doubled each time, up to a limit."""
    return min(settings.first_retry_seconds * 2.0 ** min(attempts - 1, 60), settings.longest_retry_minutes * 60)


def _may_be_passed(row: sqlite3.Row) -> bool:
    """Return whether later results of the study may be sent before this one, which the peer has refused."""
    refused = row["last_status"] is not None and row["last_status"] not in OUT_OF_RESOURCES
    return bool(refused and row["attempts"] >= HOLDS)
