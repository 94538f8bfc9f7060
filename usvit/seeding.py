"""Seeds for every purpose, derived from the one seed of a run.

Each purpose (a fold's initial weights, an epoch's order, one image's augmentation) gets
a seed of its own that depends on nothing but the run's seed and the purpose's name. So
nothing has to be replayed to resume, and the number of workers changes nothing.
"""

import hashlib
from typing import Any


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A seed in [0, 2**63) for ``purpose``; equal arguments give equal seeds on every machine.

    >>> derive_seed(0, "order", 3) == derive_seed(0, "order", 3)
    True
    >>> derive_seed(0, "order", 3) == derive_seed(0, "order", 4)
    False
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def signed(word: int) -> int:
    """A 64-bit word as int64 writes it."""
    return word - 2**64 if word >= 2**63 else word


GOLDEN = signed(0x9E3779B97F4A7C15)
"""What SplitMix64 adds to its state for the next number."""
_FIRST, _SECOND = signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def scrambled(word: Any) -> Any:
    """SplitMix64's output for a state: all 64 bits of it, of an int64 array to another, numpy's or torch's.

    Products run over, as they should; so devices agree to the bit.

    Source: Steele, Lea & Flood (2014), Fast splittable pseudorandom number generators, OOPSLA, Fig. 17 and the variant
    13 of its mixing.
    """
    word = (word ^ shifted(word, 30)) * _FIRST
    word = (word ^ shifted(word, 27)) * _SECOND
    return word ^ shifted(word, 31)


def shifted(word: Any, bits: int) -> Any:
    """int64 to the right, with zeros: numpy and torch would draw the sign in."""
    return (word >> bits) & (2 ** (64 - bits) - 1)
