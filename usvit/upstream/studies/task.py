"""One run of a study, made in this process or in a worker of Ray."""

import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import usvit
from usvit.errors import UsvitError
from usvit.experiments import make_experiment
from usvit.logging import configure_logging, messages_of
from usvit.plain_data import Settings
from usvit.progress import PlainProgress, Progress
from usvit.training import Stopped, torch_threads
from usvit.upstream.bench import benchmark
from usvit.upstream.config.bench import BenchConfig
from usvit.upstream.records.study import Kind
from usvit.upstream.studies.kinds import KINDS


@dataclass(frozen=True)
class StudyTask:
    """Everything that is needed to make one run, as plain data that can be sent to another process."""

    id: str
    kind: Kind
    config: Settings
    """A dumped configuration; run directories of other runs are absolute paths."""
    roots: dict[str, str]
    out: str
    """The run directory, as an absolute path."""
    command: str
    folder: str
    """The folder to which relative paths of the configuration refer."""
    needs: tuple[str, ...] = ()
    """Ids of the runs that have to be finished before this one."""
    usvit_version: str = usvit.__version__


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task."""

    id: str
    error: str | None = None
    """The error message; None if the run is finished."""
    details: str | None = None
    """The traceback of an unexpected exception."""
    blocked: bool = False
    """The run was not begun, because a run that it needs has failed."""


class NamedRun:
    """Progress with the name of the run before each step."""

    def __init__(self, inner: Progress, name: str):
        self._inner, self._name = inner, name

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._inner.start(f"{self._name}: {name}", total, unit, done)

    def update(self, done: int, note: str = "") -> None:
        self._inner.update(done, note)

    def finish(self) -> None:
        self._inner.finish()


def make_run(task: StudyTask, cpus: int | None, progress: Progress) -> TaskResult:
    """Make or resume one run; errors are returned, not raised, so that other runs continue.

    The exception is ``Stopped``: after a signal, the state of the run is saved and the study ends.

    Args:
        task: The run.
        cpus: Threads of PyTorch; None keeps the current number. The number determines the order of summation and so
            the last digits: the same number gives the same predictions on every machine.
        progress: Where progress is shown.
    """
    try:
        with torch_threads(cpus), messages_of(task.id):
            (_bench if task.kind == "bench" else _experiment)(task, cpus, progress)
    except Stopped:  # a signal asked for the end of the whole study
        raise
    except UsvitError as error:
        return TaskResult(task.id, str(error))
    except Exception as error:  # out of memory, or a bug: the other runs continue
        return TaskResult(task.id, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        progress.finish()
    return TaskResult(task.id)


def make_run_elsewhere(task: StudyTask, cpus: int, with_gpu: bool) -> TaskResult:
    """Call ``make_run`` in a worker process, possibly on another machine."""
    if not with_gpu:  # a run without an assigned GPU must not use one
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if usvit.__version__ != task.usvit_version:
        return TaskResult(
            task.id,
            f"The worker has usvit {usvit.__version__}, the study was started with {task.usvit_version}. "
            "Install the same version on every machine.",
        )
    if Path(task.folder).is_dir():
        os.chdir(task.folder)
    configure_logging()
    return make_run(task, cpus, NamedRun(PlainProgress(), task.id))


def _experiment(task: StudyTask, cpus: int | None, progress: Progress) -> None:
    roots = {name: Path(root) for name, root in task.roots.items()}
    config: Any = KINDS[task.kind].config.model_validate(task.config)
    experiment = make_experiment(
        task.kind, config, roots=roots, out=Path(task.out), command=task.command, progress=progress
    )
    experiment.run()


def _bench(task: StudyTask, cpus: int | None, progress: Progress) -> None:
    config = BenchConfig.model_validate(task.config)
    arguments = config.model_dump(exclude={"name", "model"}, exclude_none=True)
    if not (Path(task.out) / "bench.json").is_file():
        benchmark(
            config.name,
            **arguments,
            threads=cpus,
            out=task.out,
            progress=progress,
            command=task.command,
            overrides={"model.vit": config.model.vit} if config.model.vit else {},
        )
