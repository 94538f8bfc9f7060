"""The run directory: made once, never overwritten, resumed by the same configuration alone."""

import datetime
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any

import usvit
from usvit.config import RunConfig, identity
from usvit.errors import UsvitError
from usvit.files import clear_partials, locked, make_folder, read_json, refuse_linked_folders, write_json
from usvit.progress import Progress
from usvit.records import read_run_record, run_hashes

SCHEMA_VERSION = "1.1"
_LIBRARIES = ("torch", "timm", "lightning-fabric", "albumentations", "scikit-learn", "numpy", "pandas", "pillow")


@dataclass(frozen=True)
class Outcome:
    """What a finished run came to."""

    path: Path
    result: dict[str, Any]
    """Its figures: the content of ``metrics.json``, ``pretrain.json`` or ``transfer.json``."""
    record: dict[str, Any]
    """The content of ``run.json``."""


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

    def unfinished(self, n_folds: int, last: str, progress: Progress) -> list[int]:
        """The folds that are still to be done; that others are done already is said.

        Args:
            n_folds: of the run.
            last: the file of a fold's folder that is written last.
            progress: where it is said.
        """
        todo = [fold for fold in range(n_folds) if not (self.fold(fold) / last).is_file()]
        if len(todo) < n_folds:
            progress.say(f"Resuming {self.path}: {n_folds - len(todo)} of {n_folds} folds are done.")
        return todo

    def enter(self, fold: int, figures: dict[str, Any]) -> None:
        """Write to ``run.json`` what a fold came to, in place of what it came to before."""
        others = [result for result in self.record["results"] if result["fold"] != fold]
        self.record["results"] = sorted([*others, {"fold": fold, **figures}], key=itemgetter("fold"))
        self.save()

    def finish(self, seconds: float) -> None:
        """Mark the run as complete: everything else must have been written before.

        What a process left that was killed between a fold's last file and its clearing up is cleared up.
        """
        for fold in self.path.glob("fold-*"):
            (fold / "state.pt").unlink(missing_ok=True)
            clear_partials(fold)
        clear_partials(self.path)
        self.record |= {"state": "finished", "finished": _now(), "seconds": round(seconds, 1)}
        self.record["files"] = run_hashes(self.path)
        self.save()

    def outcome(self, file: str) -> Outcome:
        """Of a finished run; ``file``: that of its figures.

        Raises:
            UsvitError: the file is missing or damaged.
        """
        return Outcome(self.path, read_json(self.path / file), self.record)


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
    make_folder(path)
    refuse_linked_folders(path)
    with locked(path / ".lock", f"Another process is working on {path}. Wait for it, or choose another --out."):
        run = RunDir(path, existing or {**record, **_circumstances()})
        if existing is None:
            run.save()
        yield run


def read_record(path: Path) -> dict[str, Any]:
    """The content of a run's ``run.json``.

    Raises:
        UsvitError: it is missing or no JSON.
    """
    return read_run_record(path)


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
