"""The folder of an export: written under a temporary name, verified, and then renamed."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import usvit
from usvit.errors import UsvitError
from usvit.exporting.exportable import ExportSource
from usvit.files import OutputFolder, sha256_of_file, sha256_of_text
from usvit.records import ExportRecord, load_record

EXPORT_FILE = "export.json"


def identity(source: ExportSource, format_: str) -> dict[str, str]:
    """Return what identifies an export: format, version of usvit, and hashes of weights and metadata."""
    return {
        "format": format_,
        "usvit_version": usvit.__version__,
        "weights_sha256": source.metadata.exported.weights_sha256,
        "metadata_sha256": sha256_of_text(canonical(source.metadata.content())),
    }


def output_folder(out: Path) -> OutputFolder:
    """Return the folder of an export, which is written once."""
    return OutputFolder(out, "an export", EXPORT_FILE)


def finished(out: Path, wanted: Mapping[str, str]) -> ExportRecord | None:
    """Return the record of a complete earlier export of the same network in ``out``; None if there is none.

    Raises:
        UsvitError: the folder holds another export, or its files were changed.
    """
    if not output_folder(out).has_record():
        return None
    record = load_record(out / EXPORT_FILE, ExportRecord)
    if any(getattr(record, key) != value for key, value in wanted.items()):
        raise UsvitError(f"{out} holds another export. Nothing was changed. Choose another --out.")
    for name, sha256 in record.files.items():
        if not (out / name).is_file() or sha256_of_file(out / name) != sha256:
            raise UsvitError(f"{out / name} has been changed since it was exported. Choose another --out.")
    return record


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to ``out`` if the block succeeds and deleted if it fails."""
    new_parents = [parent for parent in out.absolute().parents if not parent.exists()]
    try:
        with output_folder(out).staged() as partial:
            yield partial
            files = [path for path in partial.rglob("*") if path.is_file()]
            for path in files:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
    finally:
        for parent in new_parents:  # remove those that are still empty after an error
            with suppress(OSError):
                parent.rmdir()


def hashes_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in the folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files}


def canonical(value: Any) -> str:
    """Return canonical JSON: equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
