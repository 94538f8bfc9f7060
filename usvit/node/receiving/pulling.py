"""``usvit node pull``: fetches studies from an archive, by DICOMweb, C-GET or C-MOVE.

Every instance is looked up in the database first, and one that is stored is not fetched again, so that the same command
continues after an interruption. Instances are taken in like those that arrive by themselves; the running node scores
them. With C-MOVE, the archive sends to the receiver of the running node.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError, shortened, unknown
from usvit.files import disk_errors, for_the_owner_alone, locked
from usvit.node.config.file import load_node_config
from usvit.node.config.settings import NodeConfig, PeerConfig
from usvit.node.database import NodeDatabase, add_event
from usvit.node.receiving.archives import ArchivedInstance, DimseArchive, WebArchive
from usvit.node.receiving.instance_store import InstanceStore, Outcome, is_uid
from usvit.node.receiving.sop_classes import image_classes
from usvit.node.sending import PeerUnavailable
from usvit.progress import Progress, shown_progress
from usvit.scoring import IMAGE_CLASSES

KEYS = (
    *("StudyDate", "StudyTime", "StudyID", "StudyDescription", "StudyInstanceUID", "ModalitiesInStudy"),
    *("AccessionNumber", "PatientID", "PatientName", "ReferringPhysicianName"),
)
"""Attributes by which studies can be searched (PS3.4 C.6.2.1, PS3.18 10.6)."""
WAYS = ("auto", "get", "move")
BATCH = 50
"""Instances of one C-GET or C-MOVE."""
_ARRIVAL_SECONDS = 10.0
"""Time that an instance of a finished C-MOVE has to be stored by the receiver."""


@dataclass
class StudiesPulled:
    """The result of ``pull_studies``."""

    studies: int = 0
    """Number of studies that the archive found."""
    fetched: int = 0
    """Number of instances that are stored now."""
    known: int = 0
    """Number of instances that were stored before."""
    left_out: int = 0
    """Number of instances that are no images of a kind that is scored."""
    failed: dict[str, int] = field(default_factory=dict)
    """Reason -> number of instances that were not stored."""

    @property
    def partly(self) -> bool:
        """True if an instance was not stored."""
        return bool(self.failed)

    def fail(self, reason: str, n: int = 1) -> None:
        self.failed[reason] = self.failed.get(reason, 0) + n


@checked_arguments
def pull_studies(
    config: str | Path,
    peer: str,
    *,
    study: str | None = None,
    query: Mapping[str, str] | None = None,
    retrieve: str = "auto",
    progress: Progress | None = None,
) -> StudiesPulled:
    """Fetch studies from an archive into a node; instances that the node has already are not fetched again.

    Args:
        config: configuration of the node, a YAML file. The node may be running.
        peer: name of the archive in ``peers``.
        study: StudyInstanceUID.
        query: attributes of ``KEYS`` with values, ranges (``20260101-20260131``) or patterns with ``*``; exactly one of
            ``study`` and ``query`` must be given.
        retrieve: of an AE: ``get``, ``move`` (the node must be running, and the archive must know it), or ``auto`` for
            C-GET if the archive supports it.
        progress: shows how many instances are done.

    Returns:
        Numbers of studies and instances; ``partly`` says whether an instance is missing.

    Raises:
        UsvitError: an argument is wrong, the archive cannot be reached, or the node has no room.

    Example:
        >>> import usvit
        >>> usvit.pull_studies("node.yaml", "archive", query={"StudyDate": "20260101"}).failed  # doctest: +SKIP
        {}
    """
    settings = load_node_config(config)
    if peer not in settings.peers:
        raise unknown("peer", peer, settings.peers)
    if retrieve not in WAYS:
        raise unknown("way to retrieve", retrieve, WAYS)
    wanted = _checked(study, query)
    folder = settings.folder
    with disk_errors(folder), for_the_owner_alone():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    image_classes()
    with for_the_owner_alone(), locked(folder / "pull.lock", f"Another command pulls into {folder}."):
        database = NodeDatabase(settings.database, create=True)
        try:
            return _Pull(settings, peer, database, retrieve, shown_progress(progress)).run(wanted)
        except PeerUnavailable as error:
            raise UsvitError(
                f"The peer '{peer}' does not answer: {error}. What was fetched is kept; run the same command again."
            ) from error
        finally:
            database.close()


def parse_query(items: Sequence[str]) -> dict[str, str]:
    """Parse texts of the form KEY=VALUE.

    Raises:
        UsvitError: one has another form, or its key is unknown or given twice.
    """
    found: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not value:
            raise UsvitError(
                f"'{shortened(item, 40)}' is not a condition. Give --query KEY=VALUE, such as StudyDate=20260131."
            )
        if key not in KEYS:
            raise unknown("key of --query", key, KEYS)
        if key in found:
            raise UsvitError(f"The key {key} is given twice. Give it once; a range is StudyDate=20260101-20260131.")
        found[key] = value
    return found


def _checked(study: str | None, query: Mapping[str, str] | None) -> dict[str, str]:
    if (study is None) == (not query):
        raise UsvitError("Give either a study or conditions: --study UID, or --query KEY=VALUE.")
    if study is not None:
        if not is_uid(study):
            raise UsvitError("The study must be a UID: give digits and dots, at most 64 characters.")
        return {"StudyInstanceUID": study}
    found = parse_query([f"{key}={value}" for key, value in (query or {}).items()])
    for key, value in found.items():
        if len(value) > 128 or not re.fullmatch(r"[^\x00-\x1f\\]+", value):
            raise UsvitError(f"The value of {key} is too long, or holds a backslash or a control character.")
    if all(set(value) <= {"*"} for value in found.values()):
        raise UsvitError("The conditions match every study of the archive. Give one that limits them, such as a date.")
    return found


class _Pull:
    def __init__(self, config: NodeConfig, peer: str, database: NodeDatabase, retrieve: str, progress: Progress):
        self._config, self._name, self._database, self._retrieve = config, peer, database, retrieve
        self._peer: PeerConfig = config.peers[peer]
        receive = config.receive
        self._calling = receive.ae_title if receive is not None else "USVIT"
        self._progress = progress
        self._store = InstanceStore.of(config, database, "pull")
        self._store.clear_partials()
        self._result = StudiesPulled()

    def run(self, wanted: dict[str, str]) -> StudiesPulled:
        archive: WebArchive | DimseArchive
        if self._peer.dicomweb is not None:
            archive = WebArchive(self._peer, self._store.max_bytes)
        else:
            archive = DimseArchive(self._peer, self._calling)
        result = self._result
        try:
            with archive:
                studies = archive.studies(wanted)
                result.studies = len(studies)
                for study in studies:
                    self._fetch(archive, list(archive.instances(study)))
        finally:
            with self._database.transaction() as connection:
                add_event(
                    connection,
                    "pulled",
                    peer=self._name,
                    studies=result.studies,
                    fetched=result.fetched,
                    known=result.known,
                    failed=sum(result.failed.values()),
                )
        return result

    def _fetch(self, archive: WebArchive | DimseArchive, found: list[ArchivedInstance]) -> None:
        images = [one for one in found if one.sop_class in IMAGE_CLASSES or not one.sop_class]
        self._result.left_out += len(found) - len(images)
        missing = [one for one in images if not self._has(one.instance)]
        self._result.known += len(images) - len(missing)
        self._progress.start("fetching", len(missing), "images")
        try:
            done = 0
            for part in _parts(missing):
                if not self._store.has_room():
                    raise UsvitError(
                        f"The node in {self._config.folder} has no room: the disk is full, or too many images wait to "
                        "be scored. Run the same command again when there is room."
                    )
                if isinstance(archive, WebArchive):
                    self._fetch_web(archive, part)
                else:
                    self._fetch_dimse(archive, part)
                self._progress.update(done := done + len(part))
        finally:
            self._progress.finish()

    def _fetch_web(self, archive: WebArchive, part: list[ArchivedInstance]) -> None:
        for one in part:
            partial = self._store.partial()
            try:
                if not archive.instance(one, partial):
                    self._result.fail("the archive does not deliver it")
                    continue
                taken = self._store.take(partial, source="dicomweb", announced=(one.sop_class, one.instance))
                self._count(taken.outcome)
            finally:
                partial.unlink(missing_ok=True)

    def _fetch_dimse(self, archive: DimseArchive, part: list[ArchivedInstance]) -> None:
        moving = self._retrieve == "move"
        if not moving:
            outcomes = archive.get(part, self._store)
            if outcomes is None and self._retrieve == "get":
                raise PeerUnavailable("it does not support C-GET")
            moving = outcomes is None
            for one in part if outcomes is not None else ():
                outcome = (outcomes or {}).get(one.instance)
                if outcome is None:
                    self._result.fail("the archive does not deliver it")
                else:
                    self._count(outcome)
        if moving:
            self._retrieve = "move"
            if self._config.receive is None:
                raise UsvitError(
                    f"The peer '{self._name}' does not support C-GET, and C-MOVE needs a receiver: add 'receive' to "
                    "the configuration, start the node, and make it known to the archive."
                )
            archive.move(part, self._calling)
            self._await(part)

    def _await(self, part: list[ArchivedInstance]) -> None:
        """Wait for what the archive sends to the receiver."""
        limit = time.monotonic() + _ARRIVAL_SECONDS
        missing = {one.instance for one in part}
        while missing and time.monotonic() < limit:
            missing = {uid for uid in missing if not self._has(uid)}
            if missing:
                time.sleep(0.1)
        self._result.fetched += len(part) - len(missing)
        if missing:
            self._result.fail("it has not arrived: is the node running, and does the archive know it?", len(missing))

    def _has(self, uid: str) -> bool:
        return self._database.one("SELECT 1 FROM instances WHERE sop_instance_uid = ?", (uid,)) is not None

    def _count(self, outcome: Outcome) -> None:
        if outcome is Outcome.STORED:
            self._result.fetched += 1
        elif outcome is Outcome.DUPLICATE:
            self._result.known += 1
        else:
            self._result.fail(_REASONS[outcome])


_REASONS = {
    Outcome.CONFLICT: "the node has another image with the same UID",
    Outcome.FULL: "the node has no room",
    Outcome.INVALID: "it is not a valid DICOM object",
    Outcome.TOO_LARGE: "it is larger than receive.max_instance_mb",
    Outcome.MISMATCH: "it is not what the archive announced, or it is not an image that can be scored",
}


def _parts(found: list[ArchivedInstance]) -> Iterator[list[ArchivedInstance]]:
    """Split instances into parts of at most ``BATCH`` of one series."""
    part: list[ArchivedInstance] = []
    for one in found:
        if part and (part[0].series != one.series or len(part) == BATCH):
            yield part
            part = []
        part.append(one)
    if part:
        yield part
