"""Storage of received instances: on the disk and in the database before anything is acknowledged.

An instance arrives as a file in ``incoming/.partial``. ``take`` validates it, flushes it to the disk, renames it, and
writes it into the database in one transaction. A crash before the commit leaves a file that nothing refers to, which
``clear_leftovers`` removes; the sender was not told that the instance is stored. A crash after it loses nothing.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import sqlite3
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from usvit.data.io import BadImage, DicomIdentity, PatientIdentity, read_dicom_identity
from usvit.files import insert
from usvit.node.config.settings import DEFAULT_INSTANCE_MB, NodeConfig
from usvit.node.database import NodeDatabase, add_event, count
from usvit.node.patients import CONFLICT, compare_patient
from usvit.pseudonyms import Pseudonyms
from usvit.scoring import IMAGE_CLASSES

_LOOSE_UID = re.compile(r"[0-9]+(\.[0-9]+)*")
_CHUNK = 1 << 20
LEFTOVER_SECONDS = 3600
"""Age of a file that no process can still be taking in."""
_COUNT_SECONDS = 1
"""Time for which the number of waiting instances is remembered."""
_FULL_SECONDS = 60
"""Time after which it is audited again that there is no room."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Outcome(StrEnum):
    """What became of an instance."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """The same bytes are already stored: nothing is new."""
    CONFLICT = "conflict"
    """Another instance with the same UID is stored; that one is kept."""
    FULL = "full"
    """There is no room; the sender may try again later."""
    INVALID = "invalid"
    """It is no DICOM instance, or its UIDs are not valid."""
    MISMATCH = "mismatch"
    """It is not the instance or SOP class that was announced, or its SOP class is no image that is scored."""
    TOO_LARGE = "too_large"
    """It has more bytes than ``receive.max_instance_mb`` allows."""


@dataclass(frozen=True)
class _Receipt:
    """The answer of ``InstanceStore.take``."""

    outcome: Outcome
    instance: str = ""
    """Pseudonym of the instance, if its UID is valid."""


class InstanceStore:
    """Takes in instances. Its methods may be called from several threads and processes."""

    def __init__(
        self,
        folder: Path,
        database: NodeDatabase,
        pseudonyms: Pseudonyms,
        min_free_bytes: int = 0,
        max_waiting: int | None = None,
        owner: str = "other",
        max_bytes: int = DEFAULT_INSTANCE_MB << 20,
    ):
        """Create the folders.

        Args:
            folder: folder of the node.
            database: its database.
            pseudonyms: pseudonyms for the audit log.
            min_free_bytes: with less free disk than this, nothing is taken in.
            max_waiting: with more instances than this not scored yet, nothing is taken in; None: no limit.
            owner: name of the process that takes in instances, for ``clear_partials``.
            max_bytes: a larger instance is not taken in.
        """
        self.max_bytes = max_bytes
        self._folder, self._database, self._pseudonyms = folder, database, pseudonyms
        self._incoming, self._partials = folder / "incoming", folder / "incoming" / ".partial"
        self._min_free, self._max_waiting, self._owner = min_free_bytes, max_waiting, owner
        self._counted_at, self._waiting = -math.inf, 0
        self._told_full_at = -math.inf
        self._partials.mkdir(mode=0o700, parents=True, exist_ok=True)

    @classmethod
    def of(cls, config: NodeConfig, database: NodeDatabase, owner: str) -> Self:
        """Return the store of a configuration, for the process named ``owner``."""
        receive = config.receive
        return cls(
            config.folder,
            database,
            Pseudonyms.of_key(config.key_path),
            int(receive.min_free_gb * 1e9) if receive is not None else 0,
            config.studies.max_waiting_images,
            owner,
            (receive.max_instance_mb if receive is not None else DEFAULT_INSTANCE_MB) << 20,
        )

    def partial(self) -> Path:
        """Return the name of a new file for an instance that is arriving."""
        return self._partials / f"{self._owner}-{secrets.token_hex(16)}.dcm"

    def has_room(self, n_bytes: int = 0) -> bool:
        """Return False if the disk or the queue is too full to take in another instance of ``n_bytes``."""
        found = os.statvfs(self._partials)
        if found.f_bavail * found.f_frsize - n_bytes <= self._min_free:
            return False
        if self._max_waiting is None:
            return True
        if time.monotonic() - self._counted_at > _COUNT_SECONDS:
            (self._waiting,) = self._database.rows("SELECT count(*) FROM instances WHERE state = 'stored'")[0]
            self._counted_at = time.monotonic()
        return self._waiting <= self._max_waiting

    def take(
        self,
        partial: Path,
        *,
        source: str,
        calling_ae: str = "",
        announced: tuple[str, str] | None = None,
    ) -> _Receipt:
        """Take in an instance; its file in ``incoming/.partial`` is gone afterwards.

        Args:
            partial: the file, as a DICOM file (PS3.10).
            source: ``dimse``, ``folder``, ``dicomweb``, ``cmove`` or ``cget``.
            calling_ae: AE title of the sender.
            announced: SOP class ("" if unknown) and instance UID that the sender stated beside the data set.

        Returns:
            What became of it. Only after ``stored`` and ``duplicate`` may the sender forget the instance.
        """
        try:
            return self._take(partial, source, calling_ae, announced)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            return self._refused(Outcome.FULL, calling_ae, source)
        except sqlite3.OperationalError as error:
            if "full" not in str(error):
                raise
            return _Receipt(Outcome.FULL)
        finally:
            partial.unlink(missing_ok=True)

    def tell_set_aside(self, reason: str, ticket: str) -> None:
        """Audit that a file of a watched folder was set aside under a random name."""
        with self._database.transaction() as connection:
            add_event(connection, "file_set_aside", reason=reason, ticket=ticket)
            count(connection, "files_set_aside")

    def clear_partials(self) -> None:
        """Remove the files of instances whose arrival at an earlier process of this owner was interrupted."""
        for leftover in self._partials.glob(f"{self._owner}-*"):
            leftover.unlink(missing_ok=True)

    def clear_leftovers(self) -> None:
        """Remove old files that no row of the database refers to: of processes that died before they wrote the row."""
        old = time.time() - LEFTOVER_SECONDS
        files = [*self._partials.iterdir(), *self._incoming.glob("[0-9a-f][0-9a-f]/*/*.dcm")]
        for path in files:
            name = path.relative_to(self._folder).as_posix()
            with contextlib.suppress(FileNotFoundError):
                known = self._database.one("SELECT 1 FROM instances WHERE path = ?", (name,)) is not None
                if not known and path.stat().st_mtime < old:
                    path.unlink()

    def _take(self, partial: Path, source: str, calling_ae: str, announced: tuple[str, str] | None) -> _Receipt:
        if not self.has_room():
            return self._refused(Outcome.FULL, calling_ae, source)
        if partial.stat().st_size > self.max_bytes:
            return self._refused(Outcome.TOO_LARGE, calling_ae, source)
        try:
            found = read_dicom_identity(partial)
        except BadImage:
            return self._refused(Outcome.INVALID, calling_ae, source)
        uids = (found.sop_instance_uid, found.study_uid, found.series_uid)
        if not all(map(is_uid, uids)):
            return self._refused(Outcome.INVALID, calling_ae, source)
        instance = self._pseudonyms.instance(found.sop_instance_uid)
        if found.sop_class_uid not in IMAGE_CLASSES or (
            announced is not None
            and announced not in ((found.sop_class_uid, found.sop_instance_uid), ("", found.sop_instance_uid))
        ):
            return self._refused(Outcome.MISMATCH, calling_ae, source, instance)
        n_bytes, file_sha256, dataset_sha256 = _hashes(partial)
        known, expired = self._known(found.sop_instance_uid, dataset_sha256)
        if known is not None and not expired:
            return self._refused(known, calling_ae, source, instance)
        place = self._place(found)
        flush(partial)
        _make_folders(place.parent, self._incoming)
        os.replace(partial, place)
        flush(place.parent)
        row = {
            "sop_instance_uid": found.sop_instance_uid,
            "study_uid": found.study_uid,
            "series_uid": found.series_uid,
            "sop_class_uid": found.sop_class_uid,
            "transfer_syntax_uid": found.transfer_syntax_uid,
            "path": place.relative_to(self._folder).as_posix(),
            "file_sha256": file_sha256,
            "dataset_sha256": dataset_sha256,
            "n_bytes": n_bytes,
            "calling_ae": calling_ae,
            "source": source,
            "received_at": self._database.now(),
            "attributes": json.dumps(found.attributes),
        }
        if expired:
            self._restore(row)
            return _Receipt(Outcome.DUPLICATE, instance)
        try:
            self._register(row, found.patient)
        except sqlite3.IntegrityError:  # the same instance arrived on another association at the same moment
            known, _ = self._known(found.sop_instance_uid, dataset_sha256)
            return self._refused(known or Outcome.CONFLICT, calling_ae, source, instance)
        return _Receipt(Outcome.STORED, instance)

    def _register(self, row: dict[str, Any], patient: PatientIdentity) -> None:
        study = self._pseudonyms.study(row["study_uid"])
        with self._database.transaction() as connection:
            study_id = open_study(connection, row["study_uid"], study, row["received_at"])
            insert(connection, "instances", {**row, "study_id": study_id, "state": "stored"})
            add_event(
                connection,
                "received",
                study=study,
                instance=self._pseudonyms.instance(row["sop_instance_uid"]),
                calling_ae=row["calling_ae"],
                source=row["source"],
                bytes=row["n_bytes"],
            )
            count(connection, "instances_received")
            count(connection, "bytes_received", row["n_bytes"])
            compare_patient(connection, study_id, patient.hidden(self._pseudonyms.patient), row["received_at"])

    def _restore(self, row: dict[str, Any]) -> None:
        """Register the file of an instance whose earlier file has been deleted; it is not scored again by itself."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE instances SET path = ?, file_sha256 = ?, attributes = ?, state = "
                "CASE WHEN EXISTS (SELECT 1 FROM scores WHERE instance_id = id) THEN 'scored' "
                "WHEN failure_code IS NOT NULL THEN 'failed' ELSE 'ignored' END WHERE sop_instance_uid = ?",
                (row["path"], row["file_sha256"], row["attributes"], row["sop_instance_uid"]),
            )
            add_event(
                connection,
                "instance_restored",
                instance=self._pseudonyms.instance(row["sop_instance_uid"]),
                calling_ae=row["calling_ae"],
                source=row["source"],
            )

    def _known(self, sop_instance_uid: str, dataset_sha256: str) -> tuple[Outcome | None, bool]:
        """Return what the same UID means for a new instance, and whether the file of the same one has been deleted.

        A result that comes back, because an archive forwards all that it gets, is known as well. Otherwise it would
        open its study again, and each revision would lead to the next.
        """
        if self._database.one("SELECT 1 FROM results WHERE sop_instance_uid = ?", (sop_instance_uid,)) is not None:
            return Outcome.DUPLICATE, False
        row = self._database.one(
            "SELECT dataset_sha256, state FROM instances WHERE sop_instance_uid = ?", (sop_instance_uid,)
        )
        if row is None:
            return None, False
        if row["dataset_sha256"] != dataset_sha256:
            return Outcome.CONFLICT, False
        return Outcome.DUPLICATE, row["state"] == "expired"

    def _refused(self, outcome: Outcome, calling_ae: str, source: str, instance: str = "") -> _Receipt:
        """Return a receipt for an instance that is not taken in, and audit it if the disk allows."""
        if outcome is Outcome.FULL:  # senders try again and again, and each line takes room
            if time.monotonic() - self._told_full_at < _FULL_SECONDS:
                return _Receipt(outcome)
            self._told_full_at = time.monotonic()
        told = {"instance": instance} if instance else {}
        try:
            with self._database.transaction() as connection:
                add_event(connection, f"instance_{outcome.value}", calling_ae=calling_ae, source=source, **told)
                count(connection, f"instances_{outcome.value}")
        except sqlite3.OperationalError as error:
            if "full" not in str(error):  # such as a locked database: the sender gets a failure and tries again
                raise
        return _Receipt(outcome, instance)

    def _place(self, found: DicomIdentity) -> Path:
        """Return the path of an instance: hashes of its UIDs, which are never part of a path themselves."""
        study, instance = (
            hashlib.sha256(uid.encode()).hexdigest()[:32] for uid in (found.study_uid, found.sop_instance_uid)
        )
        return self._incoming / study[:2] / study / f"{instance}.dcm"


def open_study(connection: sqlite3.Connection, study_uid: str, pseudonym: str, now: float) -> int:
    """Register that an instance of a study arrives, in an open transaction, and return the id of the study.

    A study that was done gets another revision. One that is being scored stays so; its scorer finds the new instance
    when it ends. One whose images name different patients stays stopped.
    """
    connection.execute(
        "INSERT INTO studies (study_uid, pseudonym, state, first_at, last_at) VALUES (?, ?, 'open', ?, ?) "
        "ON CONFLICT (study_uid) DO UPDATE SET last_at = excluded.last_at",
        (study_uid, pseudonym, now, now),
    )
    row = connection.execute("SELECT * FROM studies WHERE study_uid = ?", (study_uid,)).fetchone()
    if row["state"] in ("done", "failed") and row["reason"] != CONFLICT:
        reopen_study(connection, row["id"])
        add_event(connection, "study_reopened", study=pseudonym, revision=row["revision"] + 1)
    elif row["state"] in ("left_alone", "ready"):
        connection.execute("UPDATE studies SET state = 'open', reason = NULL WHERE id = ?", (row["id"],))
    return int(row["id"])


def reopen_study(connection: sqlite3.Connection, study_id: int) -> None:
    """Begin the next revision of a study, in an open transaction."""
    connection.execute(
        "UPDATE studies SET state = 'open', revision = revision + 1, started_at = NULL, attempts = 0, scorer = NULL, "
        "reason = NULL, done_at = NULL WHERE id = ?",
        (study_id,),
    )


def is_uid(value: str) -> bool:
    """Return whether a text is a UID of at most 64 characters, possibly with leading zeros, as some devices write."""
    return 0 < len(value) <= 64 and _LOOSE_UID.fullmatch(value) is not None


def _hashes(path: Path) -> tuple[int, str, str]:
    """Return the size of a file, the SHA-256 of all of it, and that of its data set without the file meta group."""
    whole, dataset, size = hashlib.sha256(), hashlib.sha256(), 0
    with open(path, "rb") as file:
        head = file.read(144)
        start = _dataset_start(head)
        file.seek(0)
        while chunk := file.read(_CHUNK):
            whole.update(chunk)
            dataset.update(chunk[max(0, start - size) :])
            size += len(chunk)
    return size, whole.hexdigest(), dataset.hexdigest()


def _dataset_start(head: bytes) -> int:
    """Return the offset of the data set; 0 without a file meta group that states its length."""
    if head[128:132] == b"DICM" and head[132:140] == b"\x02\x00\x00\x00UL\x04\x00":
        return 144 + int.from_bytes(head[140:144], "little")
    return 0


def _make_folders(folder: Path, top: Path) -> None:
    missing = []
    while folder != top and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        flush(one.parent)


def flush(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
