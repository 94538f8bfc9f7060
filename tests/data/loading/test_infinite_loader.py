"""The stream: what a batch holds depends on the seed alone, whoever makes it."""

from itertools import chain

import numpy as np
import pytest
import torch

from usvit.data.loading.infinite_loader import InfiniteLoader


class Numbers:
    """Examples that say which they are, and with which seed they were made."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def order(self, generator):
        return generator.permutation(self.n)

    def batch(self, items):
        return {"at": torch.tensor([at for at, _ in items]), "seed": torch.tensor([seed for _, seed in items])}


def stream(**options):
    return InfiniteLoader(Numbers(10), **{"batch_size": 6, "seed": 3, **options})


def rows(stream, start, stop, key="at"):
    return [batch[key].tolist() for batch in stream.iterate(start, stop)]


def together(lists):
    return list(chain.from_iterable(lists))


def test_an_epoch_holds_every_example_once_and_batches_are_full():
    flat = together(rows(stream(), 0, 5))  # 30 examples: three epochs
    assert all(sorted(flat[start : start + 10]) == list(range(10)) for start in (0, 10, 20))
    assert flat[:10] != flat[10:20]


@pytest.mark.parametrize("workers", [0, 2])
def test_any_step_can_be_the_first(workers):
    assert rows(stream(workers=workers), 3, 6, "seed") == rows(stream(), 0, 6, "seed")[3:]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_hold_together_what_one_process_holds(world):
    shares = [rows(stream(rank=rank, world=world), 0, 4, "seed") for rank in range(world)]
    found = [together(parts) for parts in zip(*shares, strict=True)]
    assert found == rows(stream(), 0, 4, "seed")


def test_repeats_are_other_views_of_the_same_examples_apart_from_one_another():
    batches = rows(stream(repeats=3), 0, 5)
    assert all(batch[:2] == batch[2:4] == batch[4:] for batch in batches)
    distinct = together(batch[:2] for batch in batches)
    assert sorted(distinct) == list(range(10)), "after five batches of two, each example was there once"
    seeds = together(rows(stream(repeats=3), 0, 5, "seed"))
    assert len(set(seeds)) == len(seeds)


def test_a_batch_that_is_no_multiple_of_the_repeats_is_full_and_lacks_last_views():
    batches = rows(stream(batch_size=8, repeats=3), 0, 3)
    assert all(len(batch) == 8 and batch[:3] == batch[3:6] and batch[6:] == batch[:2] for batch in batches)
    assert len(set(together(batch[:3] for batch in batches))) == 9, "three fresh examples a batch"


def test_seeds_of_order_and_of_views_differ_with_the_streams_seed():
    assert rows(stream(), 0, 2) != rows(stream(seed=4), 0, 2)
    assert not set(np.ravel(rows(stream(), 0, 2, "seed"))) & set(np.ravel(rows(stream(seed=4), 0, 2, "seed")))
