"""What a command of upstream work returns: its record, and where it was written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from usvit.records.base import FileRecord

OneRecord = TypeVar("OneRecord", bound=FileRecord)


@dataclass(frozen=True)
class WrittenRecord(Generic[OneRecord]):
    """A record with its place and its page."""

    path: Path
    """The folder that was written or, for a fit, the file of the record."""
    record: OneRecord
    page: Path
