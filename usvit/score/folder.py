"""The output folder of a scoring job: made once, never overwritten, resumed by the same job alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import usvit
from usvit.errors import UsvitError
from usvit.files import clear_partials, disk_errors, locked, make_folder, refuse_linked_folders, write_json
from usvit.records import JobRecord, read_record

SCHEMA_VERSION = "1.0"
JOB, JOURNAL = "job.json", "journal.sqlite"
_LOCK = ".lock"


@dataclass
class JobFolder:
    """``out`` with its ``job.json``."""

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
        """When the job began, whenever it was resumed: what it writes is dated by this, and so always the same."""
        return datetime.fromisoformat(self.record["started"])

    def seconds_until(self, end: datetime) -> float:
        """Since the job began, to a tenth; 0 where the clock was set back meanwhile."""
        return max(0.0, round((end - self.started).total_seconds(), 1))

    def finish(self) -> None:
        """Everything else is written: the journal goes, and the job is done."""
        self.record["state"] = "finished"
        write_json(self.path / JOB, self.record)
        for name in (JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"):
            (self.path / name).unlink(missing_ok=True)
        for folder, _, _ in os.walk(self.path):
            clear_partials(Path(folder))  # of processes that were killed


@contextmanager
def open_folder(out: Path, identity: dict[str, Any]) -> Iterator[JobFolder]:
    """Make the folder of a job, or open the one that is there if it is the same job.

    Args:
        out: the folder.
        identity: what decides whether a job is the same; plain JSON, without anything private.

    Raises:
        UsvitError: another job or other files are there, another process works on it, or it cannot be written.
    """
    _record_of(out, identity)  # before anything is written
    make_folder(out)
    refuse_linked_folders(out)
    with locked(out / _LOCK, f"Another process works on {out}. Wait for it, or choose another --out."):
        record = _record_of(out, identity)  # again: another process may have begun, or ended, the job meanwhile
        if record is None:
            record = {
                "schema_version": SCHEMA_VERSION,
                "usvit_version": usvit.__version__,
                "state": "running",
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "identity": identity,
            }
            write_json(out / JOB, record)
        try:
            yield JobFolder(out, record)
        finally:
            (out / _LOCK).unlink(missing_ok=True)


def _record_of(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """What ``job.json`` says; None where the folder is absent or empty.

    Raises:
        UsvitError: it is of another job, or no folder of a job, or cannot be read.
    """
    # A process that is killed before job.json is there leaves a lock and a partial file.
    with disk_errors(out):
        if out.exists() and not out.is_dir():
            raise UsvitError(f"--out {out} is a file. Choose a folder.")
        names = {one.name for one in out.iterdir()} if out.is_dir() else set()
    if JOB in names:
        record = read_record(out / JOB, JobRecord)
        _refuse_other_job(out, record, identity)
        return record
    if {name for name in names if name != _LOCK and not name.startswith((f".{JOB}.partial-", ".job.partial"))}:
        raise UsvitError(f"--out {out} exists and holds no job of usvit score. Nothing was changed: choose another.")
    return None


def _refuse_other_job(out: Path, record: dict[str, Any], identity: dict[str, Any]) -> None:
    there = record.get("identity")
    if not isinstance(there, dict) or "state" not in record or "started" not in record:
        raise UsvitError(f"{out / JOB} is damaged. Restore it, or choose another --out.")
    differing = [name for name in {**there, **identity} if there.get(name) != identity.get(name)]
    if differing:
        raise UsvitError(
            f"--out {out} holds another job (another {', '.join(sorted(differing))}). Nothing was changed: choose "
            "another folder, or give the same settings to resume."
        )
