"""The run directory: created once, never overwritten, and resumed by the same configuration only."""

import datetime
import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import usvit
from usvit.config import identity
from usvit.errors import UsvitError
from usvit.files import clear_partials, is_partial_of, locked, make_folder, refuse_linked_folders
from usvit.records import (
    FileRecord,
    RunRecord,
    load_record,
    load_run_record,
    read_run_record,
    run_hashes,
    write_record,
)
from usvit.representation import Summarised

logger = logging.getLogger(__name__)

Result = TypeVar("Result", bound=FileRecord)
_LIBRARIES = ("torch", "timm", "lightning-fabric", "albumentations", "scikit-learn", "numpy", "pandas", "pillow")


@dataclass(frozen=True, repr=False)
class RunResult(Summarised, Generic[Result]):
    """The result of a finished run."""

    path: Path
    result: Result
    """The content of ``metrics.json``, ``pretrain.json``, ``transfer.json`` or ``test.json``."""
    record: RunRecord
    """The content of ``run.json``."""

    def _facts(self) -> dict[str, object]:
        return {"path": self.path, "kind": self.record.kind, "state": self.record.state} | dict(self.result._facts())


class RunDirectory:
    """The folder of one run and the content of its ``run.json`` (``record``, which ``save`` writes)."""

    def __init__(self, path: Path, record: dict[str, Any]):
        self.path, self.record = path, record

    @property
    def finished(self) -> bool:
        return self.record["state"] == "finished"

    def fold(self, number: int) -> Path:
        """Return the folder of one fold."""
        return self.path / f"fold-{number}"

    def save(self) -> None:
        write_record(self.path / "run.json", self.record, RunRecord)

    def unfinished(self, n_folds: int, last: str) -> list[int]:
        """Return the folds that are not complete yet, and log how many are.

        Args:
            n_folds: Number of folds of the run.
            last: Name of the file that is written last in the folder of a fold.
        """
        todo = [fold for fold in range(n_folds) if not (self.fold(fold) / last).is_file()]
        if len(todo) < n_folds:
            logger.info(f"Resuming {self.path}: {n_folds - len(todo)} of {n_folds} folds are done.")
        return todo

    def enter(self, fold: int, figures: dict[str, Any]) -> None:
        """Write the figures of a fold to ``run.json``, in place of earlier ones."""
        others = [result for result in self.record["results"] if result["fold"] != fold]
        self.record["results"] = sorted([*others, {"fold": fold, **figures}], key=itemgetter("fold"))
        self.save()

    def finish(self, seconds: float) -> None:
        """Mark the run as complete after everything else has been written.

        Delete checkpoints and partial files that a killed process left behind.
        """
        for fold in self.path.glob("fold-*"):
            (fold / "state.pt").unlink(missing_ok=True)
            clear_partials(fold)
        clear_partials(self.path)
        self.record |= {"state": "finished", "finished": _now(), "seconds": round(seconds, 1)}
        self.record["files"] = run_hashes(self.path)
        self.save()

    def outcome(self, model: type[Result]) -> RunResult[Result]:
        """Read the result of a finished run.

        Args:
            model: The model of its result; its kind names the file.

        Raises:
            UsvitError: A file is missing or damaged.
        """
        result = load_record(self.path / f"{model.KIND}.json", model)
        return RunResult(self.path, result, load_run_record(self.path))


@contextmanager
def open_run(path: Path, record: dict[str, Any]) -> Iterator[RunDirectory]:
    """Create a run directory, or open an existing one if it holds the same run.

    Args:
        path: The folder.
        record: The description of the run (``Experiment.describe``). Its configuration, and the hashes of its images,
            folds and weights, decide whether an existing run is the same.

    Raises:
        UsvitError: The folder holds another run or other files, or another process is working on it.
    """
    _existing(path, record)  # before anything is written
    make_folder(path)
    refuse_linked_folders(path)
    with locked(path / ".lock", f"Another process is working on {path}. Wait for it, or choose another --out."):
        existing = _existing(path, record)  # again: another process may have begun a run in between
        run = RunDirectory(path, existing or {**record, **circumstances()})
        if existing is None:
            run.save()
        yield run


def _existing(path: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the ``run.json`` of the folder if it is that of the same run; None if nothing has begun there.

    Raises:
        UsvitError: The folder holds another run or other files.
    """
    if (path / "run.json").is_file():
        existing = read_run_record(path)
        _refuse_other_run(path, existing, record)
        return existing
    # A process that is about to write run.json has a lock and a partial file.
    begun = path.is_dir() and all(
        one.name == ".lock" or is_partial_of(one.name, path / "run.json") for one in path.iterdir()
    )
    if path.exists() and not begun:
        raise UsvitError(
            f"{path} exists and is not a run of usvit. Nothing was changed: choose another folder with --out."
        )
    return None


def circumstances() -> dict[str, Any]:
    """Return the entries of a new ``run.json`` that say when and with which software the run was begun."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    return {
        "schema_version": RunRecord.VERSION,
        "state": "running",
        "created": _now(),
        "finished": None,
        "usvit_version": usvit.__version__,
        "versions": versions,
        "results": [],
    }


def _refuse_other_run(path: Path, existing: dict[str, Any], wanted: dict[str, Any]) -> None:
    if existing["kind"] == "evaluation":
        raise UsvitError(
            f"{path} holds an evaluation of usvit evaluate, in which nothing is trained. Nothing was changed: choose "
            "another folder with --out."
        )
    there, here = ({"kind": record["kind"], **identity(record["config"])} for record in (existing, wanted))
    differing = [key for key in here if there.get(key) != here[key]]
    if differing:
        shown = "; ".join(f"{key} was {there.get(key)!r}, now {here[key]!r}" for key in differing[:4])
        raise UsvitError(
            f"{path} holds a run with another configuration ({shown}). "
            "Nothing was changed: choose another folder with --out, or give the same settings to resume."
        )
    parts = {"images": "data", "folds": "folds", "weights": "model", "teacher networks": "learnt_from"}
    parts |= {"classifiers": "classifiers"}
    for what, key in parts.items():
        if _hash(existing.get(key, {})) != _hash(wanted.get(key, {})):
            raise UsvitError(
                f"{path} was started with different {what}, so it cannot be resumed. "
                "Nothing was changed: choose another folder with --out."
            )
    several = bool(wanted["config"].get("upstream"))  # the record has the network that was kept of several
    before, now = (record.get("model", {}).get("params") for record in (existing, wanted))
    if before is not None and now is not None and before != now and not several:
        raise UsvitError(
            f"{path} was started with a network of {before:,} parameters, and this version of usvit builds "
            f"{wanted['model'].get('name')} with {now:,}, so it cannot be resumed. Nothing was changed: choose another "
            "folder with --out."
        )
    if (device := existing["device"]["type"]) != wanted["device"]["type"]:
        raise UsvitError(
            f"{path} was started on {device}, and this machine would continue on {wanted['device']['type']}, "
            f"whose results differ. Pass --device {device}, or choose another folder with --out."
        )


def _hash(section: dict[str, Any]) -> Any:
    return section.get("manifest_sha256") or section.get("sha256") or section.get("weights", {}).get("sha256")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
