"""Endless, stateless stream of training batches: the content of batch 17 depends only on the seed.

A killed training therefore continues at any step, even in the middle of an epoch, with the same order. Any number of
worker processes gives the same batches, and several ranks together have the batches of a single process.
"""

import atexit
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol, Required, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from usvit.seeding import derive_seed

Batch = dict[str, torch.Tensor]
"""Name (``images``, ``targets``, ``seeds``, ...) -> tensor with one row per example."""


class LoaderArguments(TypedDict, total=False):
    """Arguments of ``InfiniteLoader`` besides the examples."""

    batch_size: Required[int]
    seed: Required[int]
    workers: int
    repeats: int
    rank: int
    world: int


class Examples(Protocol):
    """Interface of the examples that batches are made of."""

    def __len__(self) -> int: ...

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        """Make the examples at some positions, given as (position, seed)."""

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return (N,) positions in the order of one epoch."""


class InfiniteLoader:
    """Endless full batches: epochs of shuffled examples, one after the other.

    Args:
        examples: the examples.
        batch_size: examples per batch over all ranks. Epochs run into each other, so that every batch is full.
        seed: seed of order and augmentation.
        workers: processes that make batches; 0 for the main process.
        repeats: views of one example in a batch (repeated augmentation): first one view of each example, then the next.
            If ``batch_size`` is not a multiple (DeiT: 1024 and 3), the last examples lack their last view.
        rank, world: share of each batch for this process, and number of shares, which must divide ``batch_size``.

    Attributes:
        device: device on which a subclass makes its batches; None: batches are on the host.
    """

    device: torch.device | None = None

    def __init__(
        self,
        examples: Examples,
        *,
        batch_size: int,
        seed: int,
        workers: int = 0,
        repeats: int = 1,
        rank: int = 0,
        world: int = 1,
    ):
        assert batch_size % world == 0
        self.batch_size, self.seed, self.workers = batch_size, seed, workers
        self.repeats, self.rank, self.world = repeats, rank, world
        self._examples = examples
        self._dataset = _Fetched(examples)

    @property
    def steps_per_epoch(self) -> float:
        return len(self._examples) / self.batch_size

    def positions(self, step: int) -> list[tuple[int, int]]:
        """Return (epoch, position) of each distinct example of batch ``step``, over all ranks."""
        fresh, n = -(-self.batch_size // self.repeats), len(self._examples)
        numbers = range(step * fresh, (step + 1) * fresh)
        return [(number // n, self._order(number // n)[number % n]) for number in numbers]

    def iterate(self, start: int, stop: int) -> Generator[Batch]:
        """Iterate over batches ``start`` to ``stop - 1`` of this rank."""
        loader = DataLoader(
            self._dataset,
            batch_sampler=_Lazily(self._items, range(start, stop)),
            collate_fn=_as_is,
            num_workers=self.workers,
            worker_init_fn=_outlive_signals,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # not the global one, which belongs to the model
        )
        batches = iter(loader)
        # At exit Python sends SIGTERM to the remaining processes and waits for them, but workers ignore SIGTERM. So
        # they are shut down before, even if the traceback of an error keeps this generator alive.
        leave = getattr(batches, "_shutdown_workers", bool)
        atexit.register(leave)
        try:
            yield from batches
        finally:
            leave()
            atexit.unregister(leave)

    def _items(self, step: int) -> list[tuple[int, int]]:
        positions = self.positions(step)
        items = [
            # The first view has the seed of a training without repeats.
            (at, derive_seed(self.seed, "augment", epoch, at, *([view] if view else [])))
            for view in range(self.repeats)
            for epoch, at in positions
        ][: self.batch_size]
        share = len(items) // self.world
        return items[self.rank * share : (self.rank + 1) * share]

    def _order(self, epoch: int) -> list[int]:
        if getattr(self, "_epoch", None) != epoch:
            generator = np.random.default_rng(derive_seed(self.seed, "order", epoch))
            self._epoch, self._permutation = epoch, self._examples.order(generator).tolist()
        return self._permutation


class _Fetched(Dataset[Batch]):
    def __init__(self, examples: Examples):
        self.examples = examples

    def __getitems__(self, items: Sequence[tuple[int, int]]) -> Batch:
        return self.examples.batch(items)

    def __getitem__(self, item: tuple[int, int]) -> Batch:
        return self.__getitems__([item])


class _Lazily(Sampler[list[tuple[int, int]]]):
    """Items of each step, listed when the step comes: a long training has millions of images."""

    def __init__(self, items_of: Callable[[int], list[tuple[int, int]]], steps: range):
        self._items_of, self._steps = items_of, steps

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return map(self._items_of, self._steps)

    def __len__(self) -> int:
        return len(self._steps)


def _as_is(batch: Any) -> Any:
    return batch


def _outlive_signals(worker: int) -> None:
    """Ignore a cluster's signals in workers: the training handles them and needs the workers until its next step."""
    for name in ("SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
