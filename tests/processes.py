"""Processes that begin with PyTorch imported, which takes each of them seconds of CPU time otherwise."""

import multiprocessing
import os
import signal
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *(__name__, "tests.training.small_training", "tests.dying"),
        *(
            "usvit.upstream.pretraining_run.experiment",
            "usvit.experiments.cross_validation",
            "usvit.experiments.fold_worker",
        ),
        *("usvit.scoring.job", "usvit.reports"),
    ]
)


@dataclass(frozen=True)
class Ended:
    returncode: int | None
    stderr: str


@dataclass(frozen=True)
class Started:
    """A process that is on its way; what it and its children say goes into a file."""

    process: Any
    said: Path

    def wait(self, timeout: float = 1200) -> Ended:
        self.process.join(timeout)
        if self.process.is_alive():
            self.process.kill()
            raise TimeoutError(self.said.read_text())
        return Ended(self.process.exitcode, self.said.read_text())


def start(said: Path, function: Any, *arguments: Any, torchrun: int = 0, threads: int = 1) -> Started:
    """Call a module's ``function`` in a process, or in each of the processes that ``torchrun`` starts in it.

    The process has the environment and the working directory of this one, and ``threads`` threads of PyTorch. What
    torchrun is but for its options: its agent, which starts and watches the processes and hands signals on.
    """
    process = CONTEXT.Process(target=_begin, args=(said, function, arguments, torchrun, threads, dict(os.environ)))
    process.start()
    return Started(process, said)


def run(function: Any, *arguments: Any, threads: int = 1) -> Ended:
    """Call a module's ``function`` in a process, and wait for its end."""
    with tempfile.TemporaryDirectory() as folder:
        return start(Path(folder) / "said", function, *arguments, threads=threads).wait()


def ended_well(ended: Ended) -> None:
    assert ended.returncode == 0, ended.stderr


def command_line(*arguments: object) -> None:
    """For ``start``: the command ``usvit`` with these arguments; who leaves the words to another has all the time."""
    from usvit import cli

    cli.GRACE_SECONDS = 600
    sys.argv = ["usvit", *map(str, arguments)]
    cli.main()


def _begin(
    said: Path, function: Any, arguments: tuple[Any, ...], torchrun: int, threads: int, environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    torch.set_num_threads(threads)
    if not torchrun:
        function(*arguments)
        return
    agent = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=torchrun,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="fork",
    )
    elastic_launch(agent, _as_a_program)(function, *arguments)


def _as_a_program(function: Any, *arguments: Any) -> None:
    """Call it as torchrun starts programs: without the handlers of signals that a fork has from the agent."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    function(*arguments)
