"""Random numbers of an example, from its own seed alone: the same in any portion, on any rank, on any device.

A generator for each image would have to be made on the host, one after the other. These come from a counter and a hash
instead (SplitMix64), for the whole batch at once, where the images are.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from usvit.seeding import GOLDEN, derive_seed, scrambled, shifted


def random_bits(seeds: Tensor, count: int, purpose: str) -> Tensor:
    """Independent numbers for each seed: (B,) int64 -> (B, count) int64 in [0, 2**63), on the device of ``seeds``.

    Number i of seed s is output i of SplitMix64 whose state is a hash of s and the purpose: other purposes give
    other numbers (``usvit.seeding.scrambled``). Whole numbers, so that devices agree to the bit.
    """
    state = scrambled(seeds[:, None] ^ derive_seed(0, purpose))
    steps = torch.arange(1, count + 1, device=seeds.device) * GOLDEN
    return shifted(scrambled(state + steps), 1)


def uniform(seeds: Tensor, count: int, purpose: str) -> Tensor:
    """``random_bits`` as (B, count) float32 in [0, 1), multiples of 2**-24."""
    return (random_bits(seeds, count, purpose) >> 39).float() * 2.0**-24


def permutation(seeds: Tensor, count: int, purpose: str) -> Tensor:
    """For each seed a permutation of 0 ... count - 1: (B,) int64 -> (B, count) int64."""
    return random_bits(seeds, count, purpose).argsort(dim=1, stable=True)


@contextmanager
def new_weights(seed: int, *purpose: str) -> Iterator[None]:
    """Weights made in this context start from the seed and the purpose, and the global generators are as before."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, *purpose))  # of the CPU alone, unlike torch.manual_seed
        yield
