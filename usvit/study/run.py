"""``usvit study``: what is there is kept, what is missing is run, and the table is made again after every run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.progress import Progress
from usvit.study.engines import Engine
from usvit.study.one import Task
from usvit.study.output import write_pages
from usvit.study.plan import Plan
from usvit.study.state import StudyDir, now, open_study
from usvit.study.tables import fill


@dataclass(frozen=True)
class StudyOutcome:
    """What a study came to."""

    path: Path
    record: dict[str, Any]
    """The content of ``study.json``."""
    page: Path

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The runs that failed, each with its ``error``."""
        return [run for run in self.record["runs"] if run["state"] == "failed"]


def default_out(plan: Plan) -> Path:
    """``studies/<name>``; on another data set than the file's, its name too."""
    if plan.dataset is None:
        return Path("studies") / plan.study.name
    datasets = "+".join(Path(name).stem for name in plan.dataset.split("+"))
    return Path("studies") / f"{plan.study.name}-{datasets}"


def run_study(
    plan: Plan,
    *,
    engine: Engine,
    roots: dict[str, Path],
    out: Path | None,
    command: str,
    progress: Progress,
) -> StudyOutcome:
    """Run, or resume, a study.

    A run that fails is listed with its error, and the others go on; the same study tries it again. A finished run is
    never made twice.

    Args:
        plan: the runs (``usvit.study.plan.make_plan``).
        engine: where they are made.
        roots: data set -> folder, "" for all.
        out: the study's folder; None for ``studies/<name>``.
        command: how the user asked, for the record.
        progress: where progress is shown.

    Raises:
        UsvitError: another study is there, or the engine cannot work. A run's own errors are not raised.
    """
    with open_study(out or default_out(plan), plan, command) as study:
        for run in plan.runs:
            study.settle(run.id, finished=study.is_finished(run))
        todo = [run for run in plan.runs if study.state_of(run.id) != "finished"]
        if len(todo) < len(plan.runs):
            progress.say(f"Resuming {study.path}: {len(plan.runs) - len(todo)} of {len(plan.runs)} runs are done.")
        tasks = [
            Task(
                id=run.id,
                kind=plan.study.protocol,
                config=run.config.model_dump(mode="json"),
                roots={name: str(root.absolute()) for name, root in roots.items()},
                out=str(study.run_path(run.id).absolute()),
                command=command,
                folder=str(Path.cwd()),
            )
            for run in todo
        ]
        if todo:
            study.record |= {"state": "running", "engine": engine.name, "cpus": engine.cpus}
            study.save()
        for result in engine(tasks, study.begin, progress):
            study.end(result.id, error=result.error, details=result.details)
            if result.error:
                progress.say(f"FAILED {result.id}: {result.error}")
            _show(study, plan)
        states = {run["state"] for run in study.record["runs"]}
        study.record["state"] = "finished" if states == {"finished"} else "partly"
        if todo:
            study.record["finished"] = now()
        page = _show(study, plan)
        return StudyOutcome(study.path, study.record, page)


def _show(study: StudyDir, plan: Plan) -> Path:
    """The table and its pages, of the runs that there are."""
    fill(study, plan)
    study.save()
    return write_pages(study.path, study.record)
