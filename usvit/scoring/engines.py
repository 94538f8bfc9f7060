"""Engines that run the scoring: this process with its readers, or the machines of a Ray cluster."""

import itertools
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import usvit
from usvit.cluster import TaskShare, connected
from usvit.config.scoring import ModelSettings
from usvit.errors import UsvitError
from usvit.progress import Progress
from usvit.pseudonyms import Pseudonyms
from usvit.publishing import refuse_unsigned
from usvit.records import AbstentionZone
from usvit.resources import usable_cores
from usvit.scoring.companions import load_companion
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.items import Done, ReadSettings, ScoringItem
from usvit.scoring.journal import Batch
from usvit.scoring.pipeline import CHUNK, Describer, scored
from usvit.scoring.reading.workers import Readers

logger = logging.getLogger(__name__)

_Numbered = tuple[int, ScoringItem]
Known = Callable[[int], Done]

_AHEAD = 2
"""Number of chunks sent to each worker at once, so that it never waits for the next one."""
_LOSSES = 3
"""Number of Ray workers that may be lost with the same chunk before the job is stopped, because its files may be
the cause; also the number of workers that may be lost while they start."""


@dataclass(frozen=True)
class ModelChoice:
    """The networks to load and their settings; plain data that can be sent to another machine."""

    paths: tuple[Path, ...]
    settings: ModelSettings

    def load(self) -> Ensemble:
        """Load the networks; see ``Ensemble.load``."""
        ensemble = Ensemble.load(self.paths, settings=self.settings)
        for option, use in (("seg_from", ensemble.use_segmenter), ("concepts_from", ensemble.use_concepts)):
            if (run := getattr(self.settings, option)) is not None:
                if self.settings.require_signature is not None:
                    refuse_unsigned(run, self.settings.require_signature)
                use(load_companion(option, run, self.settings.device))
        return ensemble


@dataclass(frozen=True)
class Reading:
    """How files are read, and the limits of the processes that read them."""

    settings: ReadSettings
    limits: ModelSettings

    def open(self) -> Readers:
        limits = self.limits
        workers = usable_cores() if limits.workers is None else limits.workers
        return Readers(self.settings, workers=workers, timeout=limits.timeout, memory_gb=limits.memory_gb)


def score_here(
    items: Iterable[_Numbered], reading: Reading, describer: Describer, batch_size: int, known: Known
) -> Iterator[Batch]:
    """Score with the networks of this process."""
    with (
        reading.open() as readers,
        closing(scored(readers.read(items), describer, batch_size=batch_size, known=known)) as batches,
    ):
        yield from batches


def score_on_ray(
    items: Iterable[_Numbered],
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
        share = TaskShare.of(ray, cpus, use_gpus=choice.settings.device != "cpu")
        n = share.n_at_once(ray)
        # each worker loads the networks itself
        words = (describer.pseudonyms, describer.keep_ids, describer.abstain, describer.zone, describer.lesions)
        scorer = share.remote(ray, _Scorer)

        def start() -> Any:
            return scorer.remote(reading, choice, words, batch_size, cpus, share.gpus > 0, usvit.__version__)

        logger.info(f"Ray: {n} workers, each with {share}.")
        chunks = (list(members) for _, members in itertools.groupby(items, key=lambda numbered: numbered[0] // CHUNK))
        # Only the first item of an interrupted job can be partly done, but the query is cheap.
        work = (_Chunk(members, {seq: known(seq) for seq, _ in members}) for members in chunks)
        yield from _RayWorkers(ray, start, n).score(work)


@dataclass
class _Chunk:
    """Consecutive items, and what an interrupted job has already scored of them."""

    items: list[_Numbered]
    known: dict[int, Done]
    losses: int = 0
    """Number of workers that were lost while they had this chunk."""


@dataclass(eq=False)
class _RayWorker:
    """An actor of Ray that runs ``_Scorer``."""

    actor: Any
    machine: str = ""
    n_chunks: int = 0
    lost: bool = False


class _RayWorkers:
    """The workers of a cluster. If one is lost, as with its machine, the others score its chunks again."""

    def __init__(self, ray: Any, start: Callable[[], Any], n: int):
        """Start ``n`` actors with ``start``. Those that find no free CPUs become ready later, or never."""
        self._ray, self._start = ray, start
        self._all: list[_RayWorker] = []
        self._starting: dict[Any, _RayWorker] = {}
        """Future answer -> worker that is not ready yet."""
        self._running: dict[Any, tuple[_RayWorker, _Chunk]] = {}
        """Future answer -> its worker and chunk."""
        self._free: deque[_RayWorker] = deque()
        """Each worker as often as it takes another chunk."""
        self._again: list[_Chunk] = []
        """Chunks of lost workers."""
        self._failed_starts = 0
        for _ in range(n):
            self._add()

    def score(self, chunks: Iterator[_Chunk]) -> Iterator[Batch]:
        """Yield each chunk as one batch to commit, as soon as it is scored.

        Raises:
            UsvitError: a worker cannot load the model, or ``_LOSSES`` workers were lost with the same chunk.
        """
        while True:
            while self._free and (chunk := self._again.pop() if self._again else next(chunks, None)) is not None:
                worker = self._free.popleft()
                self._running[worker.actor.score.remote(chunk.items, chunk.known)] = worker, chunk
            if self._free and not self._running:
                break
            done, _ = self._ray.wait([*self._running, *self._starting], num_returns=1)
            if done[0] in self._starting:
                self._welcome(done[0])
            elif (batch := self._answer(done[0])) is not None:
                yield batch
        counts: Counter[str] = Counter()
        for worker in self._all:
            counts[worker.machine] += worker.n_chunks
        told = ", ".join(f"{n} on {machine}" for machine, n in sorted(counts.items()) if n)
        logger.info(f"Ray: portions of {CHUNK} files scored: {told or 'none'}.")

    def _add(self) -> None:
        worker = _RayWorker(self._start())
        self._all.append(worker)
        self._starting[worker.actor.ready.remote()] = worker

    def _welcome(self, answer: Any) -> None:
        """Give work to a worker that is ready, unless it cannot load the model."""
        worker = self._starting.pop(answer)
        try:
            worker.machine, trouble = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts == _LOSSES:
                raise _lost(error) from error
            self._add()
            return
        if trouble is not None:
            raise UsvitError(trouble)
        self._free.extend([worker] * _AHEAD)

    def _answer(self, answer: Any) -> Batch | None:
        """Return the batch of a chunk; None if its worker was lost."""
        worker, chunk = self._running.pop(answer)
        try:
            batch: Batch = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            chunk.losses += 1
            if chunk.losses == _LOSSES or not isinstance(error, self._ray.exceptions.RayActorError):
                raise _lost(error) from error
            self._again.append(chunk)
            if not worker.lost:  # it may have had other chunks too
                worker.lost = True
                self._free = deque(one for one in self._free if one is not worker)
                logger.warning(f"Ray: a worker on {worker.machine} was lost. Its files are scored again.")
                self._add()
            return None
        worker.n_chunks += 1
        self._free.append(worker)
        return batch


def _lost(error: Exception) -> UsvitError:
    return UsvitError(
        "A Ray worker was lost repeatedly. The completed results are kept: run the same command again to resume. "
        f"({type(error).__name__})"
    )


class _Scorer:
    """A Ray worker that keeps its networks and readers from chunk to chunk."""

    def __init__(
        self,
        reading: Reading,
        choice: ModelChoice,
        words: tuple[Pseudonyms, bool, bool, AbstentionZone | None, bool],
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

    def ready(self) -> tuple[str, str | None]:
        """Return the address of this machine, and the reason why this worker cannot score."""
        import ray

        return ray.util.get_node_ip_address(), self._error

    def score(self, items: list[_Numbered], known: dict[int, Done]) -> Batch:
        """Return a chunk as one batch to commit."""
        whole = Batch()
        messages = self._readers.read(items)
        with closing(
            scored(messages, self._describer, batch_size=self._batch_size, known=lambda seq: known[seq])
        ) as batches:
            for batch in batches:
                whole.rows += batch.rows
                whole.failures += batch.failures
                whole.ended += batch.ended
        return whole
