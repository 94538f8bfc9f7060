"""The run directory: made once, never overwritten, resumed by the same configuration alone."""

import datetime
import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import filelock

import usvit
from usvit.config import RunConfig, identity
from usvit.errors import UsvitError
from usvit.files import disk_errors, write_json

SCHEMA_VERSION = "1.0"
_LIBRARIES = ("torch", "timm", "lightning-fabric", "albumentations", "scikit-learn", "numpy", "pandas", "pillow")


class RunDir:
    """One run's folder and its ``run.json``.

    ``record`` is the content of ``run.json``; ``save`` writes it.
    """

    def __init__(self, path: Path, record: dict[str, Any]):
        self.path, self.record = path, record

    @property
    def finished(self) -> bool:
        return self.record["state"] == "finished"

    def fold(self, number: int) -> Path:
        """The folder of one fold."""
        return self.path / f"fold-{number}"

    def save(self) -> None:
        write_json(self.path / "run.json", self.record)

    def finish(self, seconds: float) -> None:
        """Mark the run as complete: everything else must have been written before."""
        self.record |= {"state": "finished", "finished": _now(), "seconds": round(seconds, 1)}
        self.save()


@contextmanager
def open_run(path: Path, record: dict[str, Any]) -> Iterator[RunDir]:
    """Make a run directory, or open the one that is there if it is the same run.

    Args:
        path: the folder.
        record: what describes the run (``usvit.job.describe``); its configuration, and the hashes of its
            images, folds and weights, decide whether a run that is there is the same.

    Raises:
        UsvitError: another run or other files are there, or another process works on it.
    """
    existing = read_record(path) if (path / "run.json").is_file() else None
    if existing is None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsvitError(
            f"{path} exists and is no run of usvit. Nothing was changed: choose another folder with --out."
        )
    if existing is not None:
        _refuse_other_run(path, existing, record)
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UsvitError(f"Another process is working on {path}. Wait for it, or choose another --out.") from error
    try:
        run = RunDir(path, existing or {**record, **_circumstances()})
        if existing is None:
            run.save()
        yield run
    finally:
        lock.release()


def read_record(path: Path) -> dict[str, Any]:
    """The content of a run's ``run.json``.

    Raises:
        UsvitError: it is missing or no JSON.
    """
    try:
        record: dict[str, Any] = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsvitError(f"{path} is no run directory: it has no run.json.") from error
    except json.JSONDecodeError as error:
        raise UsvitError(f"{path / 'run.json'} is damaged ({error}). Choose another folder with --out.") from error
    return record


def _circumstances() -> dict[str, Any]:
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    return {
        "schema_version": SCHEMA_VERSION,
        "state": "running",
        "created": _now(),
        "finished": None,
        "usvit_version": usvit.__version__,
        "versions": versions,
        "results": [],
    }


def _refuse_other_run(path: Path, existing: dict[str, Any], wanted: dict[str, Any]) -> None:
    there, here = ({"kind": record["kind"], **identity(record["config"])} for record in (existing, wanted))
    since = identity(RunConfig().model_dump(mode="json"))  # settings that came later do by default what was done before
    differing = [key for key in here if there.get(key, since.get(key)) != here[key]]
    if differing:
        shown = "; ".join(f"{key} was {there.get(key)!r}, now {here[key]!r}" for key in differing[:4])
        raise UsvitError(
            f"{path} holds a run with another configuration ({shown}). "
            "Nothing was changed: choose another folder with --out, or give the same settings to resume."
        )
    parts = {"images": "data", "folds": "folds", "weights": "model", "teachers or tokenizers": "learnt_from"}
    for what, key in parts.items():
        if _hash(existing.get(key, {})) != _hash(wanted.get(key, {})):
            raise UsvitError(
                f"{path} was begun with other {what} than are there now, so it cannot be resumed. "
                "Nothing was changed: choose another folder with --out."
            )
    if (device := existing["device"]["type"]) != wanted["device"]["type"]:
        raise UsvitError(
            f"{path} was begun on {device} and this machine would go on with {wanted['device']['type']}, "
            f"which computes differently. Pass --device {device}, or choose another folder with --out."
        )


def _hash(section: dict[str, Any]) -> Any:
    return section.get("manifest_sha256") or section.get("sha256") or section.get("weights", {}).get("sha256")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
