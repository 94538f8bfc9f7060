"""Random numbers that depend only on the seed of an example: equal in any portion, process and on any device.

One generator per image would have to be made on the host, one after the other. These numbers come from a counter and a
hash instead (SplitMix64), for the whole batch at once, on the device of the images.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from usvit.seeding import GOLDEN, derive_seed, scrambled, shifted


def random_bits(seeds: Tensor, count: int, purpose: str) -> Tensor:
    """Draw independent numbers for each seed: (B,) int64 -> (B, count) int64 in [0, 2**63), on the device of ``seeds``.

    Number i of seed s is output i of SplitMix64, whose state is a hash of s and the purpose; other purposes give other
    numbers (``usvit.seeding.scrambled``). Integer arithmetic gives the same bits on all devices.
    """
    state = scrambled(seeds[:, None] ^ derive_seed(0, purpose))
    steps = torch.arange(1, count + 1, device=seeds.device) * GOLDEN
    return shifted(scrambled(state + steps), 1)


def uniform(seeds: Tensor, count: int, purpose: str) -> Tensor:
    """Draw (B, count) float32 in [0, 1), multiples of 2**-24."""
    return (random_bits(seeds, count, purpose) >> 39).float() * 2.0**-24


def permutation(seeds: Tensor, count: int, purpose: str) -> Tensor:
    """Draw a permutation of 0 ... count - 1 for each seed: (B,) int64 -> (B, count) int64."""
    return random_bits(seeds, count, purpose).argsort(dim=1, stable=True)


def view_seeds(seeds: Tensor, count: int) -> Tensor:
    """Map (B,) int64 seeds to (B, T), one per view, for augmentation on the device; the first is unchanged."""
    return torch.cat([seeds[:, None], random_bits(seeds, count - 1, "grafit/views")], dim=1)


@contextmanager
def new_weights(seed: int, *purpose: str) -> Iterator[None]:
    """Seed the weights made in this context by seed and purpose, and restore the global generator at the end."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, *purpose))  # only the CPU's, unlike torch.manual_seed
        yield
