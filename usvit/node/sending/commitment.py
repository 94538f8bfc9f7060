"""Storage commitment (PS3.4 annex J): an archive promises to keep what was sent to it.

After objects were stored, they are listed in an N-ACTION. The archive answers with N-EVENT-REPORT, on the same
association, on a later one that the sender opens, or on one that the archive opens to the receiver; all three end in
``on_event_report``. What the archive does not have is sent again. A request without an answer is repeated.
"""

import sqlite3
import time

from pydicom import Dataset
from pydicom.uid import generate_uid
from pynetdicom import evt
from pynetdicom.association import Association
from pynetdicom.sop_class import (  # type: ignore[attr-defined]
    StorageCommitmentPushModel,
    StorageCommitmentPushModelInstance,
)

from usvit.node.config.settings import NodeConfig, SendConfig
from usvit.node.database import NodeDatabase, add_event, count

ALL_COMMITTED, SOME_FAILED = 1, 2
"""Event types (PS3.4 J.3.3.1)."""
_NO_SUCH_INSTANCE = 0x0112
MOST_ITEMS = 500
"""Objects of one request."""
LINGER_SECONDS = 1.0
"""Time for which an association stays open for an answer on it."""
_SUCCESS, _INVALID, _UNKNOWN = 0x0000, 0x0115, 0x0110

_LACKING = """
SELECT d.id, r.sop_class_uid, r.sop_instance_uid, count(c.transaction_uid) AS n_asked,
       max(c.requested_at) AS asked_at, coalesce(max(c.state = 'waiting'), 0) AS waits
FROM deliveries d JOIN results r ON r.id = d.result_id
LEFT JOIN commitment_items i ON i.delivery_id = d.id
LEFT JOIN commitments c ON c.transaction_uid = i.transaction_uid
WHERE d.peer = ? AND d.state = 'sent' GROUP BY d.id ORDER BY d.id
"""


class CommitmentRequests:
    """Requests to one peer.

    Args:
        config: configuration of the node.
        name: name of the peer.
        database: database of the node.
    """

    def __init__(self, config: NodeConfig, name: str, database: NodeDatabase):
        self._settings: SendConfig = config.send
        self._name, self._database = name, database
        self._not_before, self._n_postponed = 0.0, 0
        self._n_polls, self._next_poll = 0, 0.0

    def is_due(self) -> bool:
        """Return whether there are objects to ask for, or an answer that may wait for our next association."""
        now = self._database.now()
        return now >= self._not_before and (bool(self._due()) or (now >= self._next_poll and self._waits()))

    def postpone(self, now: float) -> None:
        """Ask later, because the peer cannot be reached or does not accept storage commitment."""
        self._n_postponed += 1
        self._not_before = now + self._wait(self._n_postponed)

    def ask(self, association: Association) -> None:
        """Send N-ACTION for all objects that lack an answer, and wait a moment for answers, to earlier ones as well."""
        if not association.is_established:
            return
        self._n_postponed = 0
        self._expire()
        if rows := self._due()[:MOST_ITEMS]:
            self._n_polls = 0
            self._request(association, rows)
        end = time.monotonic() + LINGER_SECONDS
        while self._waits() and association.is_established and time.monotonic() < end:
            time.sleep(0.02)
        self._n_polls += 1
        self._next_poll = self._database.now() + self._wait(self._n_polls)

    def _request(self, association: Association, rows: list[sqlite3.Row]) -> None:
        accepted = {context.abstract_syntax for context in association.accepted_contexts}
        if StorageCommitmentPushModel not in accepted:
            self._not_before = self._database.now() + self._settings.commitment_minutes * 60
            self._tell("commitment_not_supported")
            return
        transaction = str(generate_uid(prefix=None))
        with self._database.transaction() as connection:  # before the request: the answer may arrive at once
            connection.execute(
                "INSERT INTO commitments (transaction_uid, peer, requested_at, state) VALUES (?, ?, ?, 'waiting')",
                (transaction, self._name, self._database.now()),
            )
            connection.executemany(
                "INSERT INTO commitment_items (transaction_uid, delivery_id, sop_instance_uid) VALUES (?, ?, ?)",
                [(transaction, row["id"], row["sop_instance_uid"]) for row in rows],
            )
            add_event(connection, "commitment_requested", peer=self._name, objects=len(rows))
        found, _ = association.send_n_action(
            _request_of(transaction, [(row["sop_class_uid"], row["sop_instance_uid"]) for row in rows]),
            1,
            StorageCommitmentPushModel,
            StorageCommitmentPushModelInstance,
        )
        if found.get("Status") != _SUCCESS:
            with self._database.transaction() as connection:
                connection.execute(
                    "UPDATE commitments SET state = 'expired' WHERE transaction_uid = ? AND state = 'waiting'",
                    (transaction,),
                )
            self._tell("commitment_refused")

    def on_event_report(self, event: evt.Event) -> tuple[int, Dataset | None]:
        """Handle N-EVENT-REPORT on an association of the sender."""
        return on_event_report(self._database, event, self._settings)

    def _due(self) -> list[sqlite3.Row]:
        """Return objects that were sent, and for which no answer is outstanding."""
        now = self._database.now()
        found = []
        longest = self._settings.give_up_hours * 3600
        for row in self._database.rows(_LACKING, (self._name,)):
            if sum(map(self._wait, range(1, row["n_asked"] + 1))) > longest:
                continue  # the time of asking is over, whatever the clock says
            late = row["asked_at"] is not None and now - row["asked_at"] > self._settings.commitment_minutes * 60
            if row["waits"] and not late:
                continue
            if row["n_asked"] == 0 or late or now >= row["asked_at"] + self._wait(row["n_asked"]):
                found.append(row)
        return found

    def _wait(self, n_times: int) -> float:
        settings = self._settings
        return min(settings.first_retry_seconds * 2.0 ** min(n_times - 1, 60), settings.longest_retry_minutes * 60)

    def _expire(self) -> None:
        before = self._database.now() - self._settings.commitment_minutes * 60
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE commitments SET state = 'expired' WHERE peer = ? AND state = 'waiting' AND requested_at < ?",
                (self._name, before),
            )

    def _waits(self) -> bool:
        """Return whether an answer of the peer is outstanding."""
        query = "SELECT 1 FROM commitments WHERE peer = ? AND state = 'waiting'"
        return self._database.one(query, (self._name,)) is not None

    def _tell(self, event: str) -> None:
        with self._database.transaction() as connection:
            add_event(connection, event, peer=self._name)
            count(connection, "commitments_failed")


def _request_of(transaction: str, objects: list[tuple[str, str]]) -> Dataset:
    """Return the data set of N-ACTION for (SOP class, SOP instance) pairs (PS3.4 J.3.2.1.1)."""
    data = Dataset()
    data.TransactionUID = transaction
    data.ReferencedSOPSequence = []
    for sop_class, instance in objects:
        item = Dataset()
        item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = sop_class, instance
        data.ReferencedSOPSequence.append(item)
    return data


def on_event_report(
    database: NodeDatabase, event: evt.Event, settings: SendConfig | None = None
) -> tuple[int, Dataset | None]:
    """Handle the answer of an archive; called by the receiver and by the sender.

    Objects that are committed are marked so. An object that the archive does not have (0x0112) waits to be sent again;
    for other failures, the sender asks again later. An answer that arrives twice changes nothing.

    Args:
        database: database of the node.
        event: N-EVENT-REPORT of pynetdicom.
        settings: times between attempts; None: the default ones.

    Returns:
        The status and data set of the response: 0x0110 for an unknown transaction, 0x0115 for an answer that cannot be
        read.
    """
    try:
        data = event.event_information
        transaction = str(data.TransactionUID)
        committed = {str(item.ReferencedSOPInstanceUID) for item in data.get("ReferencedSOPSequence") or []}
        failed = {
            str(item.ReferencedSOPInstanceUID): int(item.get("FailureReason") or 0x0110)
            for item in data.get("FailedSOPSequence") or []
        }
    except Exception:  # the peer may send anything
        return _INVALID, None
    with database.transaction() as connection:
        found = connection.execute(
            "SELECT peer, state FROM commitments WHERE transaction_uid = ?", (transaction,)
        ).fetchone()
        if found is None:
            return _UNKNOWN, None
        if found["state"] in ("complete", "incomplete"):
            return _SUCCESS, None
        conclude(connection, transaction, committed, failed, settings or SendConfig(), database.now())
    return _SUCCESS, None


def conclude(
    connection: sqlite3.Connection,
    transaction: str,
    committed: set[str],
    failed: dict[str, int],
    settings: SendConfig,
    now: float,
) -> None:
    """Record the answer to a request, in an open transaction.

    Args:
        connection: connection to the database.
        transaction: UID of the request.
        committed: SOP instance UIDs that the archive commits itself to; others than those asked for are ignored.
        failed: SOP instance UID -> failure reason (PS3.3 C.14.1.1).
        settings: times between attempts.
        now: time of the node.
    """
    rows = connection.execute(
        "SELECT i.delivery_id, i.sop_instance_uid, d.attempts FROM commitment_items i "
        "JOIN deliveries d ON d.id = i.delivery_id WHERE i.transaction_uid = ? AND d.state = 'sent'",
        (transaction,),
    ).fetchall()
    (peer,) = connection.execute("SELECT peer FROM commitments WHERE transaction_uid = ?", (transaction,)).fetchone()
    n_committed = n_failed = 0
    for row in rows:
        uid = row["sop_instance_uid"]
        if uid in committed and uid not in failed:
            n_committed += 1
            connection.execute(
                "UPDATE deliveries SET state = 'committed', done_at = ?, last_error = NULL WHERE id = ?",
                (now, row["delivery_id"]),
            )
            continue
        n_failed += 1
        reason = failed.get(uid, 0)  # 0: the answer does not name it
        connection.execute(
            "UPDATE commitment_items SET failure_reason = ? WHERE transaction_uid = ? AND delivery_id = ?",
            (reason, transaction, row["delivery_id"]),
        )
        error = f"no storage commitment (0x{reason:04X})"
        if reason == _NO_SUCH_INSTANCE:
            wait = settings.first_retry_seconds * 2.0 ** min(row["attempts"] - 1, 60)
            connection.execute(
                "UPDATE deliveries SET state = 'waiting', next_at = ?, last_error = ? WHERE id = ?",
                (now + min(wait, settings.longest_retry_minutes * 60), error, row["delivery_id"]),
            )
        else:
            connection.execute("UPDATE deliveries SET last_error = ? WHERE id = ?", (error, row["delivery_id"]))
    connection.execute(
        "UPDATE commitments SET state = ?, answered_at = ? WHERE transaction_uid = ?",
        ("incomplete" if n_failed else "complete", now, transaction),
    )
    event = "commitment_incomplete" if n_failed else "commitment_complete"
    add_event(connection, event, peer=peer, committed=n_committed, failed=n_failed)
    count(connection, "deliveries_committed", n_committed)
    if n_failed:
        count(connection, "commitments_failed", n_failed)
