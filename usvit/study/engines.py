"""Where the runs of a study are made: one after the other in this process, or by Ray. No pool of our own."""

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from usvit.errors import UsvitError
from usvit.progress import Progress
from usvit.study.one import Named, Result, Task, make_run, make_run_elsewhere

_PASSED_ON = ("USVIT_DATA", "USVIT_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT")
"""Environment variables that say where data and weights lie: a worker has those of the machine's own Ray else."""


class Engine(Protocol):
    """Makes runs; yields each result as it comes."""

    @property
    def name(self) -> str: ...

    @property
    def cpus(self) -> int:
        """Threads of each run."""

    def __call__(self, tasks: list[Task], begun: Callable[[str], None], progress: Progress) -> Iterator[Result]: ...


@dataclass(frozen=True)
class Sequential:
    """One run after the other, in this process."""

    cpus: int
    name: str = "sequential"

    def __call__(self, tasks: list[Task], begun: Callable[[str], None], progress: Progress) -> Iterator[Result]:
        for number, task in enumerate(tasks, start=1):
            begun(task.id)
            progress.say(f"Run {number} of {len(tasks)}: {task.id}")
            yield make_run(task, self.cpus, Named(progress, task.id))


@dataclass(frozen=True)
class Ray:
    """Whole runs on the workers of a Ray cluster, as many at once as its CPUs and GPUs allow.

    The study's folder, the data and usvit must be the same on every machine: a shared file system.
    """

    cpus: int
    gpus: float | None
    """None: one where the cluster has any and ``use_gpus``."""
    address: str | None
    """``host:port``, ``auto`` for the cluster on this machine, None for one of our own, on loopback, for this study."""
    use_gpus: bool
    name: str = "ray"

    def __call__(self, tasks: list[Task], begun: Callable[[str], None], progress: Progress) -> Iterator[Result]:
        if not tasks:
            return
        ray = _import_ray()
        own = not ray.is_initialized()
        if own:
            _connect(ray, self.address)
        try:
            gpus = self._gpus(ray)
            _refuse_what_never_fits(ray, self.cpus, gpus)
            remote = ray.remote(make_run_elsewhere).options(num_cpus=self.cpus, num_gpus=gpus, max_retries=0)
            waiting = {remote.remote(task, self.cpus, gpus > 0): task for task in tasks}
            at_once = f"{self.cpus} CPU" + (f" and {gpus:g} GPU" if gpus else "")
            progress.say(f"{len(waiting)} runs given to Ray, each with {at_once}.")
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                yield _result(ray, done[0], waiting.pop(done[0]))
        finally:
            if own:
                ray.shutdown()

    def _gpus(self, ray: Any) -> float:
        if self.gpus is not None:
            return self.gpus
        return 1.0 if self.use_gpus and ray.cluster_resources().get("GPU", 0) >= 1 else 0.0


def make_engine(name: str, *, address: str | None, cpus: int | None, gpus: float | None, device: str | None) -> Engine:
    """The engine that was asked for.

    Raises:
        UsvitError: an option of Ray without Ray, or no such engine.
    """
    threads = cpus or torch.get_num_threads()
    if name == "sequential":
        if address is not None or gpus is not None:
            raise UsvitError("--address and --gpus belong to --engine ray.")
        return Sequential(threads)
    if name != "ray":
        raise UsvitError(f"Unknown engine '{name}'. Known: sequential, ray.")
    _import_ray()
    return Ray(threads, gpus, None if address == "local" else address, use_gpus=device != "cpu")


def _import_ray() -> Any:
    # Before it is imported: nothing about the user's work is sent anywhere, and the workers' lines are not merged.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # as it is; unset, Ray warns of a change to come
    try:
        import ray
    except ImportError as error:
        raise UsvitError("--engine ray needs Ray: pip install 'usvit[ray]'.") from error
    return ray


def _connect(ray: Any, address: str | None) -> None:
    if address is not None and ":" in address and "://" not in address:
        _knock(address)
    settings: dict[str, Any] = {
        "runtime_env": {"env_vars": {key: os.environ[key] for key in _PASSED_ON if key in os.environ}},
        "logging_level": "warning",
        "log_to_driver": True,
    }
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        settings |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
        settings |= {"_node_ip_address": "127.0.0.1"}
    else:
        settings["address"] = address
    try:
        ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        where = "a Ray of our own" if address is None else f"the Ray cluster at {address}"
        raise UsvitError(
            f"Cannot reach {where}: {' '.join(str(error).split())[:300].rstrip('.')}. "
            "Is it of the same version of Ray and Python? Where it asks for a token: RAY_AUTH_MODE=token, and the "
            "token in RAY_AUTH_TOKEN. Without --address, a Ray of our own is started on this machine."
        ) from error


def _knock(address: str) -> None:
    """Ray itself tries for many minutes where nobody answers."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UsvitError(
            f"Nothing answers at --address {address} ({error}). Start a cluster with 'ray start --head', which prints "
            "its address; without --address, a Ray of our own is started on this machine."
        ) from error


def _refuse_what_never_fits(ray: Any, cpus: int, gpus: float) -> None:
    """Ray would wait for ever for a machine that is large enough."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        return
    largest: dict[str, float] = max(nodes, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)), default={})
    raise UsvitError(
        f"No machine of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs, which each run is to get; the largest has "
        f"{largest.get('CPU', 0):g} and {largest.get('GPU', 0):g}. Pass smaller --cpus and --gpus."
    )


def _result(ray: Any, reference: Any, task: Task) -> Result:
    try:
        result: Result = ray.get(reference)
    except ray.exceptions.RayError as error:  # the worker or its machine died
        return Result(task.id, f"The worker of Ray was lost: {' '.join(str(error).split())[:300]}")
    if result.error is None and not (Path(task.out) / "run.json").is_file():
        return Result(
            task.id,
            f"A worker made this run in a {task.out} that is not here: the study's folder must lie on a file system "
            "that all machines share, under the same path.",
        )
    return result
