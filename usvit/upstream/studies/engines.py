"""Engines that make the runs of a study: one after the other in this process, or in parallel by Ray."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from usvit.cluster import TaskShare, connected, import_ray
from usvit.errors import UsvitError
from usvit.progress import Progress
from usvit.upstream.records.study import EngineName
from usvit.upstream.studies.kinds import KINDS
from usvit.upstream.studies.task import NamedRun, StudyTask, TaskResult, make_run, make_run_elsewhere

logger = logging.getLogger(__name__)


class Engine(Protocol):
    """Makes runs, each after those that it needs, and yields each result when it is finished.

    A run that needs one that failed is not made; its result says so.
    """

    @property
    def name(self) -> EngineName: ...

    @property
    def cpus(self) -> int:
        """Threads of each run."""

    def __call__(
        self, tasks: list[StudyTask], begun: Callable[[str], None], progress: Progress
    ) -> Iterator[TaskResult]: ...


@dataclass(frozen=True)
class Sequential:
    """One run after the other, in this process."""

    cpus: int
    name: EngineName = "sequential"

    def __call__(
        self, tasks: list[StudyTask], begun: Callable[[str], None], progress: Progress
    ) -> Iterator[TaskResult]:
        failed: set[str] = set()
        for number, task in enumerate(tasks, start=1):
            result = _blocked(task, failed)
            if result is None:
                begun(task.id)
                logger.info(f"Run {number} of {len(tasks)}: {task.id}")
                result = make_run(task, self.cpus, NamedRun(progress, task.id))
            if result.error is not None:
                failed.add(task.id)
            yield result


@dataclass(frozen=True)
class Ray:
    """Makes whole runs on the workers of a Ray cluster, as many at once as its CPUs and GPUs allow.

    The study's folder, the data and usvit must be the same on every machine, on a shared file system.
    """

    cpus: int
    gpus: float | None
    """GPUs of each run; None for one if the cluster has any and ``use_gpus`` is true."""
    address: str | None
    """``host:port``, ``auto`` for the cluster on this machine, or None for a new cluster on loopback for this study."""
    use_gpus: bool
    name: EngineName = "ray"

    def __call__(
        self, tasks: list[StudyTask], begun: Callable[[str], None], progress: Progress
    ) -> Iterator[TaskResult]:
        if not tasks:
            return
        with connected(self.address) as ray:
            share = TaskShare.of(ray, self.cpus, self.gpus, use_gpus=self.use_gpus)
            remote = share.remote(ray, make_run_elsewhere, max_retries=0)
            logger.info(f"{len(tasks)} runs for Ray, each with {share}.")
            waiting, unfinished, failed = list(tasks), {task.id for task in tasks}, set[str]()
            submitted: dict[Any, StudyTask] = {}
            while waiting or submitted:
                for task in [task for task in waiting if failed & set(task.needs) or not unfinished & set(task.needs)]:
                    waiting.remove(task)
                    if (blocked := _blocked(task, failed)) is not None:
                        failed.add(task.id)
                        yield blocked
                    else:
                        submitted[remote.remote(task, self.cpus, share.gpus > 0)] = task
                if not submitted:
                    continue  # the rest waits for runs that were found to be blocked just now
                done, _ = ray.wait(list(submitted), num_returns=1)
                task = submitted.pop(done[0])
                result = _result(ray, done[0], task)
                unfinished.discard(task.id)
                if result.error is not None:
                    failed.add(task.id)
                yield result


def make_engine(name: str, *, address: str | None, cpus: int | None, gpus: float | None, device: str | None) -> Engine:
    """Create an engine by its name.

    Raises:
        UsvitError: The engine is unknown, or an option of Ray is given for another engine.
    """
    threads = cpus or torch.get_num_threads()
    if name == "sequential":
        if address is not None or gpus is not None:
            raise UsvitError("--address and --gpus belong to --engine ray.")
        return Sequential(threads)
    if name != "ray":
        raise UsvitError(f"Unknown engine '{name}'. Known: sequential, ray.")
    import_ray()
    return Ray(threads, gpus, None if address == "local" else address, use_gpus=device != "cpu")


def _blocked(task: StudyTask, failed: set[str]) -> TaskResult | None:
    """Return the result of a run that cannot be begun because one that it needs failed, otherwise None."""
    lost = [run for run in task.needs if run in failed]
    return TaskResult(task.id, f"It needs {lost[0]}, which failed.", blocked=True) if lost else None


def _result(ray: Any, reference: Any, task: StudyTask) -> TaskResult:
    try:
        result: TaskResult = ray.get(reference)
    except ray.exceptions.RayError as error:  # the worker or its machine failed
        return TaskResult(task.id, f"The worker of Ray was lost: {' '.join(str(error).split())[:300]}")
    if result.error is None and not (Path(task.out) / KINDS[task.kind].result).is_file():
        return TaskResult(
            task.id,
            f"A worker made this run in {task.out}, which this machine does not see: the study's folder must be on a "
            "file system that all machines share, under the same path.",
        )
    return result
