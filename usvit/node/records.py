"""Records of ``usvit node``: the status of a service, and the findings of ``usvit node doctor``.

Neither contains a name, an id or a UID of a patient; studies appear by their pseudonyms.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from usvit.records.base import BY_NAME, Count, FileRecord, Name, Number, Record, Sha256, Share, Text, key, optional

Pseudonym = Annotated[str, Field(pattern="^[a-f][0-9a-f]{15}$")]
Bytes = Annotated[int, Field(ge=0, le=10**18)]


FindingLevel = Literal["ok", "note", "fault"]


class NodeProcess(Record):
    """One process of the service."""

    name: Name
    alive: bool


class NodePeerQueue(Record):
    """Deliveries to one peer."""

    peer: Name = key("Name in the configuration.")
    waiting: Count
    sent: Count = key("Accepted by the peer.")
    committed: Count = key("The peer has committed itself to keep them (storage commitment).")
    gave_up: Count = key("Not delivered within send.give_up_hours; they are kept, and 'usvit node replay' tries again.")
    dry_run: Count = key("Held back by send.dry_run.")
    oldest_waiting_seconds: Number | None = key("Age of the oldest result that waits; null if none does.")
    last_status: Annotated[int, Field(ge=-1, le=65535)] | None = key(
        "DICOM or HTTP status of the last attempt that failed; -1: the peer does not take the class; null without one."
    )
    last_error: Text | None = key("Why the last attempt failed; null if nothing that waits has been tried.")


class NodeThroughput(Record):
    """Instances in the last minute and in the last hour."""

    received_minute: Count
    received_hour: Count
    scored_minute: Count
    scored_hour: Count


class NodeDisk(Record):
    """Disk of the folder of the node."""

    free_bytes: Bytes
    total_bytes: Bytes
    min_free_bytes: Bytes | None = key("receive.min_free_gb; null if the node has no receiver.")
    images_bytes: Bytes = key("Size of the images that are kept.")
    results_bytes: Bytes = key("Size of the results that are kept.")
    max_bytes: Bytes | None = key("retention.max_gb; null without a limit.")


class NodeProblem(Record):
    """An event of the audit log that tells of a problem."""

    time: Name
    event: Name
    study: Pseudonym | None
    detail: Text = key("Decision, reason or counts of the event.")


class NodeWatch(Record):
    """The last verdict of ``usvit watch`` on the results of the node (FOLDER/watch/watch.json)."""

    time: Name | None
    verdict: Literal["in control", "alarm", "stop", "not tested", "unreadable"]
    reasons: list[Text]


class NodeStatusRecord(FileRecord):
    """What a node holds and does at one moment."""

    KIND: ClassVar[str] = "node-status"
    usvit_version: Name
    time: Name = key("Time of this status (ISO 8601, UTC).")
    running: bool = key("Whether the service runs.")
    processes: list[NodeProcess]
    instances: dict[Name, Count] = key("Number of instances by state: stored, scored, failed, ignored, expired.")
    studies: dict[Name, Count] = key(
        "Number of studies by state: open, ready, scoring, done, left_alone, failed, patient_conflict (stopped: their "
        "images name different patients)."
    )
    results: dict[Name, Count] = key("Number of results by kind: sr, sc, gsps.")
    missing_results: Count = key("Results that could not be made, of images that were scored.")
    commitments: dict[Name, Count] = key("Requests for storage commitment by state.")
    oldest_study_seconds: Number | None = key("Age of the oldest study that waits to be scored; null if none does.")
    deliveries: list[NodePeerQueue]
    counters: dict[Name, Count] = key("Counters since the folder was made, such as instances_received.")
    throughput: NodeThroughput
    disk: NodeDisk
    problems: list[NodeProblem] = key("The last problems, newest first.")
    watch: NodeWatch | None = optional("Absent until 'usvit watch FOLDER --out FOLDER/watch' has run.")


class NodeFinding(Record):
    """One check of ``usvit node doctor``."""

    check: Name = key("What was checked, such as 'peer pacs'.")
    level: FindingLevel = key("'fault': the node cannot work as configured.")
    text: Text = key("What was found, and what to do about it, in one line.")

    @classmethod
    def of(cls, check: str, level: FindingLevel, text: str) -> Self:
        """Return a finding with its text in one line."""
        return cls(check=check, level=level, text=" ".join(text.split()))


class NodeCheckRecord(FileRecord):
    """What ``usvit node doctor`` found."""

    KIND: ClassVar[str] = "node-check"
    usvit_version: Name
    time: Name = key("Time of the checks (ISO 8601, UTC).")
    findings: list[NodeFinding]

    @property
    def faults(self) -> list[NodeFinding]:
        """The findings with the level ``fault``."""
        return [one for one in self.findings if one.level == "fault"]


class MercureFrame(Record):
    """One frame of a task of mercure."""

    instance: Text | None
    frame: Count
    probability: Share = key("Calibrated probability of the positive class.")
    decision: Text | None


class MercureNotification(Record):
    """What mercure tells its users."""

    text: Text
    requested: bool = key("Whether they are told at once.")


class MercureResult(Record):
    """``result.json`` of a task of mercure; it names no patient, since mercure shows it to its users."""

    model_config = BY_NAME
    usvit_version: Name
    research_use_only: bool = True
    model_sha256: Sha256
    positive_class: Name
    operating_point: Text | None
    n_scored: Count
    n_failed: Count
    n_called_positive: Count
    n_unusual: Count
    frames: list[MercureFrame] = key("The frames with the highest probabilities.")
    notification: MercureNotification = key(alias="__mercure_notification")


FILE_RECORDS: tuple[type[FileRecord], ...] = (NodeCheckRecord, NodeStatusRecord)
TABLE_ROWS = ()
