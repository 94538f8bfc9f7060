"""Studies of any number of runs for ``benchmarks.growth``, whose runs are copies of a run that was made before."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from usvit.progress import NO_PROGRESS, Progress
from usvit.upstream.studies.execution import execute
from usvit.upstream.studies.plan import make_plan
from usvit.upstream.studies.specification import load_study
from usvit.upstream.studies.task import StudyTask, TaskResult


@dataclass(frozen=True)
class CopiedRuns:
    """An engine that trains nothing: each run gets the results of a run that was made before."""

    template: Path
    cpus: int = 1
    name: Literal["sequential"] = "sequential"

    def __call__(
        self, tasks: list[StudyTask], begun: Callable[[str], None], progress: Progress
    ) -> Iterator[TaskResult]:
        record: dict[str, Any] = json.loads((self.template / "run.json").read_text())
        metrics = (self.template / "metrics.json").read_bytes()
        for task in tasks:
            begun(task.id)
            out = Path(task.out)
            out.mkdir(parents=True)
            (out / "run.json").write_text(json.dumps({**record, "name": task.id, "config": task.config}))
            (out / "metrics.json").write_bytes(metrics)
            yield TaskResult(task.id)


def run_copied_study(study: Path, out: Path, template: Path) -> None:
    """Plan a study, make its runs with ``CopiedRuns``, and write its state and pages; a finished one is resumed."""
    plan = make_plan(load_study(str(study)))
    made = execute(plan, engine=CopiedRuns(template), roots={}, out=out, command="growth", progress=NO_PROGRESS)
    assert made.record.state == "finished" and len(made.record.runs) == len(plan.runs)
