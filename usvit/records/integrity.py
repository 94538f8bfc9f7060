"""Recorded hashes: detect files of a run or a scoring job that were replaced, damaged or edited.

They are not a signature: someone who rewrites a file can rewrite its recorded hash, too. Therefore figures are also
recomputed where that is cheap (``usvit.evaluation.run_checks``).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import JSON_BYTES, TABLE_BYTES, regular_file, sha256_of_file
from usvit.records.run import RunRecord

_RESULTS = ("*.json", "*.csv", "*.parquet", "fold-*/*.json", "fold-*/*.csv")
_OTHERS = ("run.json",)
"""Contains the hashes itself."""


def run_hashes(run: Path) -> dict[str, str]:
    """Compute name -> SHA-256 of a finished run's tables and records, of all folds.

    Weights are not included: each ``model.json`` is, and contains the SHA-256 of its weights.
    """
    files = sorted(path for pattern in _RESULTS for path in run.glob(pattern) if path.is_file())
    names = [path.relative_to(run).as_posix() for path in files]
    return {name: sha256_of_file(run / name) for name in names if name not in _OTHERS}


def refuse_changed_run(run: Path, record: RunRecord, only: str | None = None) -> None:
    """Check the files of a run against the hashes in its run.json; an unfinished run has none.

    Args:
        run: Folder of the run.
        record: Content of its run.json.
        only: Folder of a fold, such as ``fold-0``; None: all files.

    Raises:
        UsvitError: As ``refuse_changed``.
    """
    recorded = record.files or {}
    names = [name for name in recorded if ".." not in name.split("/") and not name.startswith(("/", "."))]
    refuse_changed(run, recorded, "run.json", [one for one in names if only is None or one.startswith(f"{only}/")])


def refuse_changed(folder: Path, recorded: Mapping[str, str], where: str, names: Iterable[str]) -> None:
    """Check files against their recorded hashes.

    Args:
        folder: Folder of the files.
        recorded: Name -> SHA-256. Files that are not recorded or do not exist are skipped.
        where: Name of the file that contains the hashes, for the error message.
        names: Files that are about to be read.

    Raises:
        UsvitError: If the hash of a file differs, or if it is not a regular file.
    """
    for name in names:
        if name not in recorded or not (folder / name).exists():
            continue
        limit = JSON_BYTES if name.endswith(".json") else TABLE_BYTES
        regular_file(folder / name).close()  # no link, either
        if sha256_of_file(folder / name, limit) != recorded[name]:
            raise UsvitError(
                f"{folder / name} is not the file whose SHA-256 is in {where}: it was changed, damaged or "
                "replaced after it was written. Restore it from the original."
            )
