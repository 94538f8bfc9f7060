"""Random numbers of an example, from its own seed alone: the same in any portion, on any rank, on any device.

A generator for each image would have to be made on the host, one after the other. These come from a counter and a hash
instead (SplitMix64), for the whole batch at once, where the images are.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from usvit.seeding import derive_seed

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def random_bits(seeds: Tensor, count: int, purpose: str) -> Tensor:
    """Independent numbers for each seed: (B,) int64 -> (B, count) int64 in [0, 2**63), on the device of ``seeds``.

    Number i of seed s is output i of SplitMix64 whose state is a hash of s and the purpose: other purposes give
    other numbers. Whole numbers, so that devices agree to the bit.

    Source: Steele, Lea & Flood (2014), Fast splittable pseudorandom number generators, OOPSLA, Fig. 17 and the variant
    13 of its mixing.
    """
    state = _mixed(seeds[:, None] ^ _signed(derive_seed(0, purpose)))
    steps = torch.arange(1, count + 1, device=seeds.device) * _signed(_GOLDEN)
    return _shifted(_mixed(state + steps), 1)


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


def _mixed(z: Tensor) -> Tensor:
    """SplitMix64's finaliser; 64-bit products wrap, as they do in C."""
    z = (z ^ _shifted(z, 30)) * _signed(_FIRST)
    z = (z ^ _shifted(z, 27)) * _signed(_SECOND)
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """To the right, with zeros: torch repeats the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    """A 64-bit word as int64 writes it."""
    return word - (1 << 64) if word >> 63 else word
