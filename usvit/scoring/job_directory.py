"""The output folder of a scoring job, which is never overwritten and which only the same job can resume."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import usvit
from usvit.errors import UsvitError
from usvit.files import clear_partials, disk_errors, locked, make_folder, refuse_linked_folders
from usvit.records import JobRecord, read_record, write_record

JOB, JOURNAL = "job.json", "journal.sqlite"
_LOCK = ".lock"


@dataclass
class JobDirectory:
    """The output folder and the content of its ``job.json``."""

    path: Path
    record: dict[str, Any]

    @property
    def finished(self) -> bool:
        return bool(self.record["state"] == "finished")

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def started(self) -> datetime:
        """Time at which the job first started. Its files carry this date, so that resuming gives the same bytes."""
        return datetime.fromisoformat(self.record["started"])

    def seconds_until(self, end: datetime) -> float:
        """Return the seconds since the job started, rounded to 0.1; 0 if the clock was set back in between."""
        return max(0.0, round((end - self.started).total_seconds(), 1))

    def finish(self) -> None:
        """Mark the job as finished and delete the journal, after everything else has been written."""
        self.record["state"] = "finished"
        write_record(self.path / JOB, self.record, JobRecord)
        for name in (JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"):
            (self.path / name).unlink(missing_ok=True)
        for folder, _, _ in os.walk(self.path):
            clear_partials(Path(folder))  # of processes that were killed


@contextmanager
def open_folder(out: Path, identity: dict[str, Any]) -> Iterator[JobDirectory]:
    """Create the folder of a job, or open an existing one that belongs to the same job.

    Args:
        out: the folder.
        identity: the settings that identify a job; plain JSON, without private data.

    Raises:
        UsvitError: the folder holds another job or other files, another process is using it, or it cannot be written.
    """
    _record_of(out, identity)  # before anything is written
    make_folder(out)
    refuse_linked_folders(out)
    with locked(out / _LOCK, f"Another process is using {out}. Wait for it, or choose another --out."):
        record = _record_of(out, identity)  # again: another process may have changed it in between
        if record is None:
            record = {
                "schema_version": JobRecord.VERSION,
                "usvit_version": usvit.__version__,
                "state": "running",
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "identity": identity,
            }
            write_record(out / JOB, record, JobRecord)
        try:
            yield JobDirectory(out, record)
        finally:
            (out / _LOCK).unlink(missing_ok=True)


def _record_of(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """Return the content of ``job.json``; None if the folder is absent or empty.

    Raises:
        UsvitError: the folder belongs to another job, is not the folder of a job, or cannot be read.
    """
    # A process that is killed before it has written job.json leaves a lock and a partial file.
    with disk_errors(out):
        if out.exists() and not out.is_dir():
            raise UsvitError(f"--out {out} is a file. Pass a folder.")
        names = {one.name for one in out.iterdir()} if out.is_dir() else set()
    if JOB in names:
        record = read_record(out / JOB, JobRecord)
        _refuse_other_job(out, record, identity)
        return record
    if {name for name in names if name != _LOCK and not name.startswith(f".{JOB}.partial-")}:
        raise UsvitError(
            f"--out {out} exists and holds no job of usvit score. Nothing was changed. Choose another folder."
        )
    return None


def _refuse_other_job(out: Path, record: dict[str, Any], identity: dict[str, Any]) -> None:
    there = record["identity"]
    try:
        datetime.fromisoformat(record["started"])
    except ValueError as error:
        raise UsvitError(f"{out / JOB} is damaged. Restore it, or choose another --out.") from error
    differing = [name for name in {**there, **identity} if there.get(name) != identity.get(name)]
    if differing:
        raise UsvitError(
            f"--out {out} holds another job, which differs in: {', '.join(sorted(differing))}. Nothing was changed. "
            "Choose another folder, or pass the same settings to resume."
        )
