"""The run directory: created once, never overwritten, and resumed by the same configuration only."""

import datetime
import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import usvit
from usvit.config import identity
from usvit.errors import UsvitError
from usvit.files import OutputFolder, clear_partials
from usvit.records import FileRecord, RunRecord, load_record, load_run_record, run_hashes, save_record
from usvit.records.run import FoldResultRecord
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

    def __init__(self, path: Path, record: RunRecord):
        self.path, self.record = path, record

    @property
    def finished(self) -> bool:
        return self.record.state == "finished"

    def fold(self, number: int) -> Path:
        """Return the folder of one fold."""
        return self.path / f"fold-{number}"

    def save(self, **changes: Any) -> None:
        """Write ``run.json`` with other values of some keys."""
        self.record = self.record.model_copy(update=changes)
        save_record(self.path / "run.json", self.record)

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

    def enter(self, result: FoldResultRecord) -> None:
        """Write the result of a fold to ``run.json``, in place of an earlier one."""
        others = [one for one in self.record.results if one.fold != result.fold]
        self.save(results=sorted([*others, result], key=attrgetter("fold")))

    def finish(self, seconds: float) -> None:
        """Mark the run as complete after everything else has been written.

        Delete checkpoints and partial files that a killed process left behind.
        """
        for fold in self.path.glob("fold-*"):
            (fold / "state.pt").unlink(missing_ok=True)
            clear_partials(fold)
        clear_partials(self.path)
        self.save(state="finished", finished=_now(), seconds=round(seconds, 1), files=run_hashes(self.path))


def outcome(run: Path, model: type[Result]) -> RunResult[Result]:
    """Read the result of a finished run.

    Args:
        run: The run directory.
        model: The model of its result; its kind names the file.

    Raises:
        UsvitError: A file is missing or damaged.
    """
    return RunResult(run, load_record(run / f"{model.KIND}.json", model), load_run_record(run))


def begun(**sections: Any) -> RunRecord:
    """Return the record of a run that begins now with this software.

    Args:
        **sections: All other keys of ``run.json``.
    """
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    return RunRecord(
        **sections,
        state="running",
        created=_now(),
        finished=None,
        usvit_version=usvit.__version__,
        versions=versions,
        results=[],
    )


@contextmanager
def open_run(path: Path, record: RunRecord) -> Iterator[RunDirectory]:
    """Create a run directory, or open an existing one if it holds the same run.

    Args:
        path: The folder.
        record: The description of the run (``Experiment.new_record``). Its configuration, and the hashes of its images,
            folds and weights, decide whether an existing run is the same.

    Raises:
        UsvitError: The folder holds another run or other files, or another process is working on it.
    """
    folder = OutputFolder(path, "a run", "run.json")
    _existing(folder, record)  # before anything is written
    with folder.opened():
        existing = _existing(folder, record)  # again: another process may have begun a run in between
        run = RunDirectory(path, existing or record)
        if existing is None:
            run.save()
        yield run


def _existing(folder: OutputFolder, record: RunRecord) -> RunRecord | None:
    """Return the ``run.json`` of the folder if it is that of the same run; None if nothing has begun there.

    Raises:
        UsvitError: The folder holds another run or other files.
    """
    if not folder.has_record():
        return None
    existing = load_run_record(folder.path)
    _refuse_other_run(folder.path, existing, record)
    return existing


def _refuse_other_run(path: Path, existing: RunRecord, wanted: RunRecord) -> None:
    if existing.kind == "evaluation":
        raise UsvitError(
            f"{path} holds an evaluation of usvit evaluate, in which nothing is trained. Nothing was changed: choose "
            "another folder with --out."
        )
    there, here = ({"kind": record.kind, **identity(record.config.as_written())} for record in (existing, wanted))
    here = {**{key: None for key in there if key.startswith("units.")}, **here}  # absent if a row is an image
    differing = [key for key in here if there.get(key) != here[key]]
    if differing:
        shown = "; ".join(f"{key} was {there.get(key)!r}, now {here[key]!r}" for key in differing[:4])
        raise UsvitError(
            f"{path} holds a run with another configuration ({shown}). "
            "Nothing was changed: choose another folder with --out, or give the same settings to resume."
        )
    now = _hashes(wanted)
    for what, before in _hashes(existing).items():
        if before != now[what]:
            raise UsvitError(
                f"{path} was started with different {what}, so it cannot be resumed. "
                "Nothing was changed: choose another folder with --out."
            )
    several = bool(wanted.config.as_written().get("upstream"))  # the record has the network that was kept of several
    there_params, here_params = existing.model.params, wanted.model.params
    if None not in (there_params, here_params) and there_params != here_params and not several:
        raise UsvitError(
            f"{path} was started with a network of {there_params:,} parameters, and this version of usvit builds "
            f"{wanted.model.name} with {here_params:,}, so it cannot be resumed. Nothing was changed: choose another "
            "folder with --out."
        )
    if (device := existing.device.type) != wanted.device.type:
        raise UsvitError(
            f"{path} was started on {device}, and this machine would continue on {wanted.device.type}, "
            f"whose results differ. Pass --device {device}, or choose another folder with --out."
        )


def _hashes(record: RunRecord) -> dict[str, str | None]:
    """Return the hash of each input of a run, which a resumed run must have, too."""
    return {
        "images": record.data.manifest_sha256 or record.data.sha256,
        "folds": record.folds.sha256,
        "weights": record.model.weights.sha256,
        "teacher networks": None if record.learnt_from is None else record.learnt_from.sha256,
        "classifiers": None if record.classifiers is None else record.classifiers.sha256,
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
