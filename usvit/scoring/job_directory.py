"""The output folder of a scoring job, which is never overwritten and which only the same job can resume."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import usvit
from usvit.errors import UsvitError
from usvit.files import OutputFolder, clear_partials
from usvit.records import JobIdentity, JobRecord, load_record, save_record

JOB, JOURNAL = "job.json", "journal.sqlite"


@dataclass
class JobDirectory:
    """The output folder and the content of its ``job.json``."""

    path: Path
    record: JobRecord

    @property
    def finished(self) -> bool:
        return self.record.state == "finished"

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def started(self) -> datetime:
        """Time at which the job first started. Its files carry this date, so that resuming gives the same bytes."""
        return datetime.fromisoformat(self.record.started)

    def seconds_until(self, end: datetime) -> float:
        """Return the seconds since the job started, rounded to 0.1; 0 if the clock was set back in between."""
        return max(0.0, round((end - self.started).total_seconds(), 1))

    def finish(self) -> None:
        """Mark the job as finished and delete the journal, after everything else has been written."""
        self.record = self.record.model_copy(update={"state": "finished"})
        save_record(self.path / JOB, self.record)
        for name in (JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"):
            (self.path / name).unlink(missing_ok=True)
        for folder, _, _ in os.walk(self.path):
            clear_partials(Path(folder))  # of processes that were killed


@contextmanager
def open_folder(out: Path, identity: Mapping[str, Any]) -> Iterator[JobDirectory]:
    """Create the folder of a job, or open an existing one that belongs to the same job.

    Args:
        out: the folder.
        identity: the settings that identify a job; plain JSON, without private data.

    Raises:
        UsvitError: the folder holds another job or other files, another process is using it, or it cannot be written.
    """
    folder = OutputFolder(out, "a scoring job", JOB, files=(f".{JOB}.partial-*",))
    _record_of(folder, identity)  # before anything is written
    with folder.opened(verb="using"):
        record = _record_of(folder, identity)  # again: another process may have changed it in between
        if record is None:
            record = JobRecord(
                usvit_version=usvit.__version__,
                state="running",
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                identity=JobIdentity.model_validate(identity),
            )
            save_record(out / JOB, record)
        yield JobDirectory(out, record)


def _record_of(folder: OutputFolder, identity: Mapping[str, Any]) -> JobRecord | None:
    """Return the content of ``job.json``; None if the folder is absent or empty.

    Raises:
        UsvitError: the folder belongs to another job, is not the folder of a job, or cannot be read.
    """
    if not folder.has_record():
        return None
    record = load_record(folder.path / JOB, JobRecord)
    _refuse_other_job(folder.path, record, identity)
    return record


def _refuse_other_job(out: Path, record: JobRecord, identity: Mapping[str, Any]) -> None:
    there, wanted = record.identity.content(), JobIdentity.model_validate(identity).content()
    try:
        datetime.fromisoformat(record.started)
    except ValueError as error:
        raise UsvitError(f"{out / JOB} is damaged. Restore it, or choose another --out.") from error
    differing = [name for name in {**there, **wanted} if there.get(name) != wanted.get(name)]
    if differing:
        raise UsvitError(
            f"--out {out} holds another job, which differs in: {', '.join(sorted(differing))}. Nothing was changed. "
            "Choose another folder, or pass the same settings to resume."
        )
