"""Hashes on record: what a run or a scoring job wrote is what stands there now.

They find files that were exchanged, damaged or edited. They are no signature: whoever rewrites a file and its recorded
hash is not found by them, so figures are also recomputed where that is cheap (``usvit.metrics.recorded``).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.files import JSON_BYTES, TABLE_BYTES, regular_file, sha256_of_file

_RESULTS = ("*.json", "*.csv", "*.parquet", "fold-*/*.json", "fold-*/*.csv")
_OTHERS = ("run.json",)
"""It holds the hashes."""


def run_hashes(run: Path) -> dict[str, str]:
    """Name -> SHA-256 of a finished run's files of results: tables and records, of all folds.

    Weights are not among them: each ``model.json``, which is, holds the SHA-256 of its own.
    """
    files = sorted(path for pattern in _RESULTS for path in run.glob(pattern) if path.is_file())
    names = [path.relative_to(run).as_posix() for path in files]
    return {name: sha256_of_file(run / name) for name in names if name not in _OTHERS}


def refuse_changed_run(run: Path, record: Mapping[str, Any], only: str | None = None) -> None:
    """``refuse_changed`` for the files of a run; nothing where it has none on record (older runs).

    Args:
        run: its folder.
        record: the content of its run.json.
        only: a fold's folder, ``fold-0``; None: all files.
    """
    recorded = record.get("files") or {}
    names = [name for name in recorded if ".." not in name.split("/") and not name.startswith(("/", "."))]
    refuse_changed(run, recorded, "run.json", [one for one in names if only is None or one.startswith(f"{only}/")])


def refuse_changed(folder: Path, recorded: Mapping[str, str], where: str, names: Iterable[str]) -> None:
    """Refuse files that are not those on record.

    Args:
        folder: that the files lie in.
        recorded: name -> SHA-256; files that are not on record, or not there, are passed over.
        where: the name of the record's file, for the error.
        names: the files that are about to be read.

    Raises:
        UsvitError: a file is another one than was recorded, or no regular file.
    """
    for name in names:
        if name not in recorded or not (folder / name).exists():
            continue
        limit = JSON_BYTES if name.endswith(".json") else TABLE_BYTES
        regular_file(folder / name).close()  # no link, either
        if sha256_of_file(folder / name, limit) != recorded[name]:
            raise UsvitError(
                f"{folder / name} is not the file whose SHA-256 stands in {where}: it was changed, damaged or "
                "exchanged after it was written. Restore it from the original."
            )
