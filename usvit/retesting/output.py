"""The files of a test-retest: ``repeatability.json``, its page, and the scores of changed images."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from usvit import __version__
from usvit.errors import UsvitError
from usvit.evaluation import ScorePairs
from usvit.files import locked, make_folder
from usvit.records import RepeatabilityRecord, check_record, write_record
from usvit.reports import write_repeatability_page

RECORD, PAGE, SCORES = "repeatability.json", "repeatability.html", "changes.csv"
FILES = {RECORD, PAGE, SCORES}
_LOCK = ".lock"


def head(name: str, positive: str, warnings: list[str]) -> dict[str, Any]:
    """Return the keys that both kinds of repeatability.json have."""
    return {
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
    if out.exists() and not (out.is_dir() and {one.name for one in out.iterdir()} <= {*FILES, _LOCK}):
        raise UsvitError(f"{out} holds other files. Nothing was changed: choose another folder with --out.")


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created.

    Raises:
        UsvitError: Another process writes into the folder, or it cannot be written.
    """
    make_folder(out)
    with locked(out / _LOCK, f"Another process is working on {out}. Wait for it, or choose another --out."):
        try:
            yield
        finally:
            (out / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):
                out.rmdir()  # empty after an error


def written(content: dict[str, Any], out: Path | None, pairs: ScorePairs | None = None) -> RepeatabilityRecord:
    """Write the record and its page into a folder, if there is one, and return the record."""
    if out is None:
        return check_record(content, RepeatabilityRecord, Path(RECORD))
    record = write_record(out / RECORD, content, RepeatabilityRecord)
    write_repeatability_page(out / PAGE, record, pairs)
    return record
