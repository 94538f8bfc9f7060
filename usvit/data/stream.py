"""An endless stream of training batches that has no state: what batch 17 holds depends on the seed alone.

So a killed training goes on at any step, in the middle of an epoch too, with the same order; any number of worker
processes gives the same batches; and several ranks hold, together, what one process alone would.
"""

import atexit
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from usvit.seeding import derive_seed

Batch = dict[str, torch.Tensor]
"""Name (``images``, ``targets``, ``seeds``, ...) -> one row for each example."""


class Examples(Protocol):
    """What batches are made of."""

    def __len__(self) -> int: ...

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        """The examples at some positions, each made with the seed that comes with it: (position, seed) -> rows."""

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """(N,) positions in the order of one epoch."""


class Stream:
    """Full batches without end: epochs of shuffled examples, one after the other.

    Args:
        examples: what there is.
        batch_size: examples a batch over all ranks; epochs run into each other, so that every batch is full.
        seed: of order and augmentation.
        workers: processes that make batches; 0 for the main process.
        repeats: views of one example in a batch (repeated augmentation). They stand apart: first one view of each, then
            the next; where ``batch_size`` is no multiple (DeiT: 1024 and 3), the last examples lack their last view.
        rank, world: which share of each batch this process holds, of how many; ``world`` must divide ``batch_size``.
    """

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
        """(epoch, position) of each distinct example of batch ``step``, over all ranks."""
        fresh, n = -(-self.batch_size // self.repeats), len(self._examples)
        numbers = range(step * fresh, (step + 1) * fresh)
        return [(number // n, self._order(number // n)[number % n]) for number in numbers]

    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        """Batches ``start`` to ``stop - 1`` of this rank."""
        loader = DataLoader(
            self._dataset,
            batch_sampler=_Lazily(self._items, range(start, stop)),
            collate_fn=_as_is,
            num_workers=self.workers,
            worker_init_fn=_outlive_signals,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # its own: the global one belongs to the model, and is restored on resume
        )
        batches = iter(loader)
        # At exit Python ends what processes are left by SIGTERM, which workers do not hear, and waits for them. So they
        # are told to go before, also where the traceback of an error keeps this generator from being closed.
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
            # The first view's seed is that of a training without repeats.
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
    """What each step holds, made when its turn comes: a long training has millions of images to list."""

    def __init__(self, items_of: Callable[[int], list[tuple[int, int]]], steps: range):
        self._items_of, self._steps = items_of, steps

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return map(self._items_of, self._steps)

    def __len__(self) -> int:
        return len(self._steps)


def _as_is(batch: Any) -> Any:
    return batch


def _outlive_signals(worker: int) -> None:
    """A cluster's signal reaches the workers, too: the training itself answers it, and needs them to its next step."""
    for name in ("SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
