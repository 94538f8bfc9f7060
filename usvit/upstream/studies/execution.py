"""Execution of a study: finished runs are kept, missing ones are made, and the table is kept up to date."""

import contextlib
import logging
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import csv_text, write_text
from usvit.progress import Progress
from usvit.upstream.records.study import StudyRecord, StudyRun
from usvit.upstream.records.written_record import WrittenRecord
from usvit.upstream.studies.document import failures, write_pages
from usvit.upstream.studies.engines import Engine
from usvit.upstream.studies.pace import Pace
from usvit.upstream.studies.plan import StudyPlan
from usvit.upstream.studies.state import StudyDir, now, open_study
from usvit.upstream.studies.steps import replaced
from usvit.upstream.studies.tables import fill, long_table
from usvit.upstream.studies.task import StudyTask

logger = logging.getLogger(__name__)


class StudyOutcome(WrittenRecord[StudyRecord]):
    """The result of a study: the content of ``study.json``, its folder and its page."""

    @property
    def failed(self) -> list[StudyRun]:
        """The runs that failed, each with its ``error``."""
        return failures(self.record)


def default_out(plan: StudyPlan) -> Path:
    """Return ``studies/<name>``, with the scale and the data set if they are not those of the file."""
    if plan.scale != "paper":
        return Path("studies") / f"{plan.study.name}-{plan.scale}"
    if plan.dataset is None:
        return Path("studies") / plan.study.name
    datasets = "+".join(Path(name).stem for name in plan.dataset.split("+"))
    return Path("studies") / f"{plan.study.name}-{datasets}"


def execute(
    plan: StudyPlan,
    *,
    engine: Engine,
    roots: dict[str, Path],
    out: Path,
    command: str,
    progress: Progress,
    runs: Path | None = None,
) -> StudyOutcome:
    """Make the missing runs of a study.

    A run that fails is listed with its error, and the others continue; the same call tries it again. A finished run
    is never repeated. ``study.json`` and the pages are written whenever a run begins or ends, but in a large study of
    short runs less often (``usvit.upstream.studies.pace``), and always at the end.

    Args:
        plan: The runs (``usvit.upstream.studies.plan.make_plan``).
        engine: The engine that makes them.
        roots: Folder of each data set by its name; "" for all others.
        out: The study's folder.
        command: What the user called, for the record.
        progress: Where progress is shown.
        runs: Folder of the runs, which several studies may share. Default: ``runs`` in ``out``.

    Raises:
        UsvitError: The folder holds another study, or the engine cannot start. Errors of single runs are not raised.
    """
    with open_study(out, plan, command, runs) as study:
        for run in plan.runs:
            study.settle(run.id, finished=study.is_finished(run))
        todo = [run for run in plan.runs if study.state_of(run.id) != "finished"]
        if len(todo) < len(plan.runs):
            logger.info(f"Resuming {study.path}: {len(plan.runs) - len(todo)} of {len(plan.runs)} runs are done.")
        tasks = [
            StudyTask(
                id=run.id,
                kind=run.kind,
                config=replaced(run.config, {one: str(study.run_path(one).absolute()) for one in run.needs}),
                roots={name: str(root.absolute()) for name, root in roots.items()},
                out=str(study.run_path(run.id).absolute()),
                command=command,
                folder=str(Path.cwd()),
                needs=run.needs,
            )
            for run in todo
        ]
        if todo:
            study.record.state, study.record.engine, study.record.cpus = "running", engine.name, engine.cpus
            study.save()
        pace = Pace()

        def begin(run_id: str) -> None:
            study.begin(run_id)
            pace.do(study.save)

        try:
            for result in engine(tasks, begin, progress):
                if result.blocked:
                    study.block(result.id, str(result.error))
                else:
                    study.end(result.id, error=result.error, details=result.details)
                    if result.error:
                        logger.info(f"FAILED {result.id}: {result.error}")
                pace.do(lambda: _show(study, plan))
        except BaseException:  # a signal, or the engine: the latest states may not have been written
            with contextlib.suppress(UsvitError):
                _show(study, plan)
            raise
        states = {run.state for run in study.record.runs}
        study.record.state = "finished" if states == {"finished"} else "partly"
        if todo:
            study.record.finished = now()
        return _show(study, plan)


def _show(study: StudyDir, plan: StudyPlan) -> StudyOutcome:
    """Write the table and its pages for the runs that are finished."""
    fill(study, plan)
    study.save()
    write_text(study.path / "study.csv", csv_text(long_table(study, plan)))
    return StudyOutcome(study.path, study.record, write_pages(study.path, study.record))
