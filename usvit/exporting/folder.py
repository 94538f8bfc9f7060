"""The folder of an export: written under a temporary name, verified, and then renamed."""

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import usvit
from usvit.errors import UsvitError
from usvit.exporting.exportable import ExportSource
from usvit.files import disk_errors, sha256_of_file, sha256_of_text
from usvit.records import ExportRecord, load_record, write_record

EXPORT_FILE = "export.json"


def identity(source: ExportSource, format_: str) -> dict[str, Any]:
    """Return what identifies an export: format, version of usvit, and hashes of weights and metadata."""
    return {
        "schema_version": ExportRecord.VERSION,
        "format": format_,
        "usvit_version": usvit.__version__,
        "weights_sha256": source.metadata.exported.weights_sha256,
        "metadata_sha256": sha256_of_text(canonical(source.content)),
    }


def refuse_occupied(out: Path) -> None:
    """Raise early if the export could not be put into its folder.

    Raises:
        UsvitError: ``out`` is a file, or a folder with other files than an export's.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / EXPORT_FILE).is_file())):
        raise UsvitError(f"{out} exists and is not an export of usvit. Nothing was changed. Choose another --out.")


def finished(out: Path, wanted: dict[str, Any]) -> ExportRecord | None:
    """Return the record of a complete earlier export of the same network in ``out``; None if there is none.

    Raises:
        UsvitError: the folder holds another export, or its files were changed.
    """
    refuse_occupied(out)
    if not (out / EXPORT_FILE).is_file():
        return None
    record = load_record(out / EXPORT_FILE, ExportRecord)
    if any(getattr(record, key) != value for key, value in wanted.items()):
        raise UsvitError(f"{out} holds another export. Nothing was changed. Choose another --out.")
    for name, sha256 in record.files.items():
        if not (out / name).is_file() or sha256_of_file(out / name) != sha256:
            raise UsvitError(f"{out / name} has been changed since it was exported. Choose another --out.")
    return record


@contextmanager
def staged(out: Path, record: dict[str, Any]) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to ``out`` if the block succeeds and deleted if it fails.

    At the end, ``record`` is written as ``export.json``, with the SHA-256 of every file.
    """
    out = out.absolute()
    partial = out.with_name(f".{out.name}.partial-{secrets.token_hex(8)}")
    made = [parent for parent in out.parents if not parent.exists()]
    with disk_errors(out):
        try:
            partial.mkdir(parents=True)
            yield partial
            files = sorted(path for path in partial.rglob("*") if path.is_file())
            record["files"] = {path.relative_to(partial).as_posix(): sha256_of_file(path) for path in files}
            write_record(partial / EXPORT_FILE, record, ExportRecord)
            for path in files:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            _put(partial, out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            for parent in made:  # remove those that are still empty after an error
                with contextlib.suppress(OSError):
                    parent.rmdir()


def _put(partial: Path, out: Path) -> None:
    try:
        if out.exists():
            out.rmdir()  # it was empty when it was checked
        os.replace(partial, out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise UsvitError(f"Another process has written to {out}. Choose another --out.") from error
        raise


def canonical(value: Any) -> str:
    """Return canonical JSON: equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
