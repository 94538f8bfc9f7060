"""``review.json``: the progress of a study, as ``usvit review status`` tells it."""

from typing import ClassVar

from usvit.records.base import Count, FileRecord, Name, Number, Record, Sha256, key


class ReaderProgress(Record):
    """How far one reader is."""

    name: Name
    done: Count = key("Readings that are finished.")
    total: Count = key("Readings of all sessions; of an arbiter, the cases in which the readers differ so far.")
    session: Count = key("Session of the next reading, from 1.")
    sessions: Count
    mean_seconds: Number | None = key("Mean time of a reading, without breaks; null before the first one.")
    finished: bool
    opens_at: Name | None = key("Time at which the next session opens, ISO 8601; null if it is open.")


class ReviewRecord(FileRecord):
    """Progress of a study."""

    KIND: ClassVar[str] = "review"
    title: Name
    study: Sha256 = key("Identity of the study: its settings and the files of its cases.")
    n_cases: Count
    n_images: Count
    readers: list[ReaderProgress]


FILE_RECORDS = (ReviewRecord,)
TABLE_ROWS = ()
