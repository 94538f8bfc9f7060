"""The files of a test-retest: ``repeatability.json``, its page, and the scores of changed images."""

from pathlib import Path
from typing import Any

from usvit import __version__
from usvit.errors import UsvitError
from usvit.evaluation import ScorePairs
from usvit.files import LOCK
from usvit.records import RepeatabilityRecord, check_record, write_record
from usvit.reports import write_repeatability_page

RECORD, PAGE, SCORES = "repeatability.json", "repeatability.html", "changes.csv"
FILES = {RECORD, PAGE, SCORES}


def head(name: str, positive: str, warnings: list[str]) -> dict[str, Any]:
    """Return the keys that both kinds of repeatability.json have."""
    return {
        "schema_version": RepeatabilityRecord.VERSION,
        "name": name,
        "positive_class": positive,
        "repeats": None,
        "changes": None,
        "most_flips": None,
        "weights_sha256": None,
        "warnings": warnings,
        "created_with": f"usvit {__version__}",
    }


def refuse_other_files(out: Path) -> None:
    """Raise UsvitError if a folder contains anything but ``FILES``."""
    if out.exists() and not (out.is_dir() and {one.name for one in out.iterdir()} <= {*FILES, LOCK}):
        raise UsvitError(f"{out} holds other files. Nothing was changed: choose another folder with --out.")


def written(content: dict[str, Any], out: Path | None, pairs: ScorePairs | None = None) -> RepeatabilityRecord:
    """Write the record and its page into a folder, if there is one, and return the record."""
    if out is None:
        return check_record(content, RepeatabilityRecord, Path(RECORD))
    record = write_record(out / RECORD, content, RepeatabilityRecord)
    write_repeatability_page(out / PAGE, record, pairs)
    return record
