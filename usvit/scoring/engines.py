"""Engines that run the scoring: this process with its readers, or the machines of a Ray cluster."""

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import usvit
from usvit.cluster import connected, refuse_what_never_fits
from usvit.errors import UsvitError
from usvit.progress import Progress
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.items import Done, ReadSettings, ScoringItem
from usvit.scoring.journal import Batch
from usvit.scoring.pipeline import CHUNK, Describer, scored
from usvit.scoring.reading.workers import Readers

logger = logging.getLogger(__name__)

Numbered = tuple[int, ScoringItem]
Known = Callable[[int], Done]

AHEAD = 2
"""Number of chunks sent to each worker at once, so that it never waits for the next one."""


@dataclass(frozen=True)
class ModelChoice:
    """The networks to load and their settings; plain data that can be sent to another machine."""

    path: Path
    folds: str
    device: str
    precision: str
    flip: bool
    calibration: Path | None
    rule: str

    def load(self) -> Ensemble:
        """Load the networks; see ``Ensemble.load``."""
        return Ensemble.load(
            self.path,
            folds=self.folds,
            device=self.device,
            precision=self.precision,
            flip=self.flip,
            calibration=self.calibration,
            rule=self.rule,
        )


@dataclass(frozen=True)
class Reading:
    """Settings of the reader processes."""

    settings: ReadSettings
    workers: int
    timeout: float
    memory_gb: float

    def open(self) -> Readers:
        return Readers(self.settings, workers=self.workers, timeout=self.timeout, memory_gb=self.memory_gb)


def score_here(
    items: Iterable[Numbered], reading: Reading, describer: Describer, batch_size: int, known: Known
) -> Iterator[Batch]:
    """Score with the networks of this process."""
    with (
        reading.open() as readers,
        closing(scored(readers.read(items), describer, batch_size=batch_size, known=known)) as batches,
    ):
        yield from batches


def score_on_ray(
    items: Iterable[Numbered],
    reading: Reading,
    choice: ModelChoice,
    describer: Describer,
    *,
    batch_size: int,
    known: Known,
    address: str | None,
    cpus: int,
    progress: Progress,
) -> Iterator[Batch]:
    """Score chunk by chunk on the machines of a Ray cluster; the results are those of ``score_here``.

    Files, model and usvit must be the same on every machine, for example on a shared file system. The key of the
    pseudonyms and the paths of the files are sent to the memory of the workers; images are not.

    Raises:
        UsvitError: Ray is not installed or cannot be reached, no machine is large enough, or a worker cannot load the
            model.
    """
    with connected(address) as ray:
        gpus = 1.0 if choice.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1 else 0.0
        refuse_what_never_fits(ray, cpus, gpus)
        n = max(1, int(ray.cluster_resources().get("CPU", 1) // cpus))
        n = min(n, int(ray.cluster_resources()["GPU"])) if gpus else n
        remote = ray.remote(_Scorer).options(num_cpus=cpus, num_gpus=gpus, max_restarts=2, max_task_retries=2)
        words = (describer.pseudonyms, describer.keep_ids, describer.abstain)  # each worker loads the networks itself
        actors = [
            remote.remote(reading, choice, words, batch_size, cpus, gpus > 0, usvit.__version__) for _ in range(n)
        ]
        logger.info(f"Ray: {n} workers, each with {cpus} CPU" + (f" and {gpus:g} GPU." if gpus else "."))
        chunks = itertools.groupby(items, key=lambda numbered: numbered[0] // CHUNK)
        running: dict[Any, Any] = {}
        free = [actor for actor in actors for _ in range(AHEAD)]
        exhausted = False
        while True:
            while free and not exhausted:
                if (chunk := next(chunks, None)) is None:
                    exhausted = True
                    break
                members = list(chunk[1])
                # Only the first item of an interrupted job can be partly done, but the query is cheap.
                there = {seq: known(seq) for seq, _ in members}
                actor = free.pop()
                running[actor.score.remote(members, there)] = actor
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            free.append(running.pop(done[0]))
            yield _answer(ray, done[0])


class _Scorer:
    """A Ray worker that keeps its networks and readers from chunk to chunk."""

    def __init__(
        self,
        reading: Reading,
        choice: ModelChoice,
        words: tuple[Pseudonyms, bool, bool],
        batch_size: int,
        cpus: int,
        use_gpu: bool,
        version: str,
    ):
        self._error: str | None = None
        if version != usvit.__version__:
            self._error = (
                f"A Ray worker has usvit {usvit.__version__}, but the job has {version}. Install the same version."
            )
            return
        if not use_gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        torch.set_num_threads(cpus)
        try:
            self._describer = Describer(choice.load(), *words)
        except UsvitError as error:
            self._error = f"On a worker of Ray: {error}"
            return
        self._readers, self._batch_size = reading.open(), batch_size
        self._readers.__enter__()  # for the life of this process

    def score(self, items: list[Numbered], known: dict[int, Done]) -> Batch | str:
        """Return a chunk as one batch to commit, or an error message if the worker cannot score it."""
        if self._error is not None:
            return self._error
        whole = Batch()
        messages = self._readers.read(items)
        for batch in scored(messages, self._describer, batch_size=self._batch_size, known=lambda seq: known[seq]):
            whole.rows += batch.rows
            whole.failures += batch.failures
            whole.ended += batch.ended
        return whole


def _answer(ray: Any, reference: Any) -> Batch:
    try:
        answer: Batch | str = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise UsvitError(
            "A Ray worker was lost repeatedly. The completed results are kept: run the same command again to resume. "
            f"({type(error).__name__})"
        ) from error
    if isinstance(answer, str):
        raise UsvitError(answer)
    return answer
