"""The folder of a study and its state: created once, and resumed by the same study only."""

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import usvit
from usvit.config import identity
from usvit.errors import UsvitError
from usvit.files import OutputFolder, make_folder, write_text
from usvit.records import load_record, load_run_record, save_record
from usvit.upstream.records.study import State, StudyColumn, StudyPaper, StudyRecord, StudyRun
from usvit.upstream.studies.kinds import KINDS
from usvit.upstream.studies.metric_names import title_of
from usvit.upstream.studies.plan import PlannedRun, StudyPlan
from usvit.upstream.studies.results import RunFigures

_RENEWED = ("title", "columns", "seeds", "other_dataset", "changed", "paper", "notes", "runs_folder")
"""Keys that affect no run, and are those of the current call."""


class StudyDir:
    """The folder of one study: ``study.json``, ``runs/<id>/`` and, for runs that failed, ``errors/<id>.txt``.

    ``record`` is the content of ``study.json``, which ``save`` writes. The runs may be in another folder, which several
    studies share.
    """

    def __init__(self, path: Path, record: StudyRecord, runs: Path | None = None):
        self.path, self.record = path, record
        self.runs = path / "runs" if runs is None else runs
        self.results: dict[str, RunFigures] = {}
        """What the table shows of the finished runs whose results have been read."""
        self._by_id = {run.id: run for run in record.runs}

    def save(self) -> None:
        save_record(self.path / "study.json", self.record)

    def run_path(self, run_id: str) -> Path:
        """Return the run directory of a run."""
        return self.runs / run_id

    def state_of(self, run_id: str) -> State:
        """Return the state of a run."""
        return self._by_id[run_id].state

    def is_finished(self, run: PlannedRun) -> bool:
        """Return whether the run directory is complete, independently of ``study.json``.

        Raises:
            UsvitError: The directory holds another run.
        """
        path = self.run_path(run.id)
        if run.kind == "bench":
            return (path / KINDS["bench"].result).is_file()
        if not (path / "run.json").is_file():
            return False
        found = load_run_record(path)
        there, here = {"kind": found.kind}, {"kind": run.kind}
        if run.kind in ("cv", "train") and not run.needs:  # all other ids contain a hash of their settings
            there |= identity(found.config.model_dump(exclude_unset=True))
            here |= identity(dict(run.config))
        differing = [key for key in here if there.get(key) != here[key]]
        if differing:
            raise UsvitError(
                f"{path} holds a run of another study ({differing[0]} is {there.get(differing[0])!r} there, "
                f"{here[differing[0]]!r} here). Nothing was changed: move that folder, or choose another --out."
            )
        return found.state == "finished" and (path / KINDS[run.kind].result).is_file()

    def begin(self, run_id: str) -> None:
        """Record that a run has started; the caller saves the record."""
        run = self._by_id[run_id]
        run.state, run.error = "running", None

    def end(self, run_id: str, *, error: str | None = None, details: str | None = None) -> None:
        """Record the outcome of a run; the caller saves the record with its new table."""
        run = self._by_id[run_id]
        run.state, run.error = "failed" if error else "finished", error
        run.attempts += 1
        log = self.path / "errors" / f"{run_id}.txt"
        if error:
            write_text(log, f"{details or error}\n")
        else:
            log.unlink(missing_ok=True)

    def block(self, run_id: str, reason: str) -> None:
        """Record that a run waits because one that it needs failed; the caller saves the record."""
        run = self._by_id[run_id]
        run.state, run.error = "waiting", reason

    def settle(self, run_id: str, *, finished: bool) -> None:
        """Set the initial state of a run: finished, or waiting (failed runs are tried again)."""
        run = self._by_id[run_id]
        run.state = "finished" if finished else "waiting"
        if finished:
            run.error = None


@contextmanager
def open_study(path: Path, plan: StudyPlan, command: str, runs: Path | None = None) -> Iterator[StudyDir]:
    """Create the folder of a study, or open an existing one if it holds the same study.

    Titles, notes and the figures of the paper may differ, because they do not affect a run.

    Args:
        path: The folder.
        plan: The study.
        command: What the user called, for the record of a new study.
        runs: Folder of the runs. Default: ``runs`` in ``path``.

    Raises:
        UsvitError: The folder holds another study or other files, or another process is working on it.
    """
    folder = OutputFolder(path, "a study", "study.json")
    _existing(folder, plan)  # before anything is written
    with folder.opened():
        existing = _existing(folder, plan)  # again: another process may have begun a study in between
        make_folder(path / "runs" if runs is None else runs, path if runs is None else runs)
        runs_folder = Path(os.path.relpath(path / "runs" if runs is None else runs, path)).as_posix()
        record = new_record(plan, command, runs_folder)
        if existing is not None:
            record = existing.model_copy(update={name: getattr(record, name) for name in _RENEWED})
        study = StudyDir(path, record, runs)
        if existing is None:
            study.save()
        yield study


def _existing(folder: OutputFolder, plan: StudyPlan) -> StudyRecord | None:
    """Return the ``study.json`` of the folder if it is that of the same study; None if nothing has begun there.

    Raises:
        UsvitError: The folder holds another study or other files.
    """
    if not folder.has_record():
        return None
    existing = load_record(folder.path / "study.json", StudyRecord)
    _refuse_other_study(folder.path, existing, plan)
    return existing


def new_record(plan: StudyPlan, command: str, runs_folder: str = "runs") -> StudyRecord:
    """Return the content of ``study.json`` before the first run."""
    study, paper = plan.study, plan.study.paper
    return StudyRecord(
        name=study.name,
        state="running",
        created=now(),
        command=command,
        usvit_version=usvit.__version__,
        title=study.title,
        columns=[_column(plan, name) for name in study.columns],
        seeds=list(plan.seeds),
        other_dataset=plan.dataset,
        scale=plan.scale,
        changed=list(plan.changed),
        paper=None if paper is None else StudyPaper(**paper.model_dump()),
        notes=list(study.notes),
        engine=None,
        cpus=None,
        runs=[_waiting(run) for run in plan.runs],
        table=[],
        seed_spread=[],
        correlations=[],
        runs_folder=runs_folder,
    )


def _waiting(run: PlannedRun) -> StudyRun:
    return StudyRun(
        id=run.id,
        kind=run.kind,
        seed=run.seed,
        needs=list(run.needs),
        state="waiting",
        attempts=0,
        error=None,
        seconds=None,
        config=dict(run.recorded),
    )


def _column(plan: StudyPlan, name: str) -> StudyColumn:
    column = plan.study.columns[name]
    return StudyColumn(
        name=name,
        figure=column.figure,
        of=None if column.of is None else list(column.of),
        minus=column.minus,
        title=column.title or title_of(column.figure),
        percent=_in_percent(plan, name),
        tolerance=None if column.tolerance is None else column.tolerance.value,
    )


def _in_percent(plan: StudyPlan, name: str) -> bool:
    """Return whether a column is shown in per cent: as the paper prints its figures, or the same figure elsewhere."""
    columns = plan.study.columns
    for names in ([name], [other for other in columns if columns[other].figure == columns[name].figure]):
        printed = [row.printed[each] for each in names for row in plan.rows if each in row.printed]
        printed += [one for each in names if (one := columns[each].tolerance) is not None]
        if printed:
            return any(figure.percent for figure in printed)
    return False


def _refuse_other_study(path: Path, existing: StudyRecord, plan: StudyPlan) -> None:
    there = {run.id: _compared(run.kind, run.config) for run in existing.runs}
    here = {run.id: _compared(run.kind, dict(run.recorded)) for run in plan.runs}
    differs = []
    for key, before, wanted in (("name", existing.name, plan.study.name), ("scale", existing.scale, plan.scale)):
        if before != wanted:
            differs.append(f"its {key} is {before}, now {wanted}")
    differs += [f"{name} is new" for name in here if name not in there]
    differs += [f"{name} is gone" for name in there if name not in here]
    for name in here:
        if name in there and (keys := [key for key in here[name] if there[name].get(key) != here[name][key]]):
            key = keys[0]
            differs.append(f"{name}: {key} was {there[name].get(key)!r}, now {here[name][key]!r}")
    if differs:
        shown = "; ".join(differs[:3]) + (f"; and {len(differs) - 3} more" if len(differs) > 3 else "")
        raise UsvitError(
            f"{path} holds another study ({shown}). Nothing was changed: choose another folder with --out, "
            "or give the same file and options to resume."
        )


def _compared(kind: str, config: dict[str, object]) -> dict[str, Any]:
    """Return what must be equal in two studies; the ids of most kinds contain a hash of their settings."""
    return {"kind": kind} | (identity(config) if kind in ("cv", "train") else {})


def now() -> str:
    """Return the current time in UTC, in ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
