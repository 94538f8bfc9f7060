"""Engines that make the runs of a study: one after the other in this process, or in parallel by Ray."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from usvit.cluster import connected, import_ray, refuse_what_never_fits
from usvit.errors import UsvitError
from usvit.progress import Progress
from usvit.studies.task import NamedRun, StudyTask, TaskResult, make_run, make_run_elsewhere

logger = logging.getLogger(__name__)


class Engine(Protocol):
    """Makes runs and yields each result when it is finished."""

    @property
    def name(self) -> str: ...

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
    name: str = "sequential"

    def __call__(
        self, tasks: list[StudyTask], begun: Callable[[str], None], progress: Progress
    ) -> Iterator[TaskResult]:
        for number, task in enumerate(tasks, start=1):
            begun(task.id)
            logger.info(f"Run {number} of {len(tasks)}: {task.id}")
            yield make_run(task, self.cpus, NamedRun(progress, task.id))


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
    name: str = "ray"

    def __call__(
        self, tasks: list[StudyTask], begun: Callable[[str], None], progress: Progress
    ) -> Iterator[TaskResult]:
        if not tasks:
            return
        with connected(self.address) as ray:
            gpus = self._gpus(ray)
            refuse_what_never_fits(ray, self.cpus, gpus)
            remote = ray.remote(make_run_elsewhere).options(num_cpus=self.cpus, num_gpus=gpus, max_retries=0)
            waiting = {remote.remote(task, self.cpus, gpus > 0): task for task in tasks}
            at_once = f"{self.cpus} CPU" + (f" and {gpus:g} GPU" if gpus else "")
            logger.info(f"{len(waiting)} runs submitted to Ray, each with {at_once}.")
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                yield _result(ray, done[0], waiting.pop(done[0]))

    def _gpus(self, ray: Any) -> float:
        if self.gpus is not None:
            return self.gpus
        return 1.0 if self.use_gpus and ray.cluster_resources().get("GPU", 0) >= 1 else 0.0


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


def _result(ray: Any, reference: Any, task: StudyTask) -> TaskResult:
    try:
        result: TaskResult = ray.get(reference)
    except ray.exceptions.RayError as error:  # the worker or its machine failed
        return TaskResult(task.id, f"The worker of Ray was lost: {' '.join(str(error).split())[:300]}")
    if result.error is None and not (Path(task.out) / "run.json").is_file():
        return TaskResult(
            task.id,
            f"A worker made this run in {task.out}, which this machine does not see: the study's folder must be on a "
            "file system that all machines share, under the same path.",
        )
    return result
