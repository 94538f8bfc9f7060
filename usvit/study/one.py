"""One run of a study, wherever it is made: in this process or in a worker of Ray."""

import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

import usvit
from usvit.config import RunConfig
from usvit.cv import run_protocol
from usvit.errors import UsvitError
from usvit.progress import PlainProgress, Progress


@dataclass(frozen=True)
class Task:
    """All that is needed to make one run; plain data, so that it can travel."""

    id: str
    kind: Literal["cv", "train"]
    config: dict[str, Any]
    """A dumped ``RunConfig``."""
    roots: dict[str, str]
    out: str
    """The run directory; for another machine an absolute path."""
    command: str
    folder: str
    """Where relative paths of the configuration begin."""
    usvit_version: str = usvit.__version__


@dataclass(frozen=True)
class Result:
    """What became of it."""

    id: str
    error: str | None = None
    """One paragraph; None where the run is finished."""
    details: str | None = None
    """A bug's traceback."""


class Named:
    """Progress that says of which run it is."""

    def __init__(self, inner: Progress, name: str):
        self._inner, self._name = inner, name

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._inner.start(f"{self._name}: {name}", total, unit, done)

    def update(self, done: int, note: str = "") -> None:
        self._inner.update(done, note)

    def finish(self) -> None:
        self._inner.finish()

    def say(self, line: str) -> None:
        self._inner.say(f"{self._name}: {line}")


def make_run(task: Task, cpus: int | None, progress: Progress) -> Result:
    """Make, or resume, one run. What goes wrong is told, not raised: other runs go on.

    Args:
        task: the run.
        cpus: threads of PyTorch; None leaves them as they are. The number decides in which order sums are taken, and so
            the last digits: the same number gives the same predictions wherever the run is made.
        progress: where progress is shown.
    """
    threads = torch.get_num_threads()
    try:
        if cpus is not None:
            torch.set_num_threads(cpus)
        run_protocol(
            task.kind,
            RunConfig.model_validate(task.config),
            roots={name: Path(root) for name, root in task.roots.items()},
            out=Path(task.out),
            command=task.command,
            progress=progress,
        )
    except UsvitError as error:
        return Result(task.id, str(error))
    except Exception as error:  # out of memory, or a bug: the other runs have a right to be made
        return Result(task.id, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        torch.set_num_threads(threads)
        progress.finish()
    return Result(task.id)


def make_run_elsewhere(task: Task, cpus: int, with_gpu: bool) -> Result:
    """``make_run`` in a worker process, perhaps of another machine."""
    if not with_gpu:  # a run that was given no GPU must not take one that is there
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if usvit.__version__ != task.usvit_version:
        return Result(
            task.id,
            f"The worker has usvit {usvit.__version__}, the study was started with {task.usvit_version}. "
            "Install the same version on every machine.",
        )
    if Path(task.folder).is_dir():
        os.chdir(task.folder)
    return make_run(task, cpus, Named(PlainProgress(), task.id))
