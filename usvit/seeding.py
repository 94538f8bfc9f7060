"""Derive seeds for all purposes from the seed of a run.

Each purpose (the initial weights of a fold, the order of an epoch, the augmentation of an image) has its own seed,
which depends only on the seed of the run and the name of the purpose. So a run resumes without replaying random draws,
and the number of workers does not change the results.
"""

import hashlib
from typing import Any


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a seed in [0, 2**63) for a purpose; equal arguments give equal seeds on every machine.

    >>> derive_seed(0, "order", 3) == derive_seed(0, "order", 3)
    True
    >>> derive_seed(0, "order", 3) == derive_seed(0, "order", 4)
    False
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def signed(word: int) -> int:
    """Return an unsigned 64-bit integer as the int64 with the same bits."""
    return word - 2**64 if word >= 2**63 else word


GOLDEN = signed(0x9E3779B97F4A7C15)
"""Increment of the state of SplitMix64 for each number."""
_FIRST, _SECOND = signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def scrambled(word: Any) -> Any:
    """Return the 64-bit output of SplitMix64 for a state; int64 arrays of numpy or torch.

    Integer multiplication wraps around; the algorithm relies on it. All devices agree to the bit.

    Source: Steele, Lea & Flood (2014), Fast splittable pseudorandom number generators, OOPSLA, Fig. 17 and the variant
    13 of its mixing.
    """
    word = (word ^ shifted(word, 30)) * _FIRST
    word = (word ^ shifted(word, 27)) * _SECOND
    return word ^ shifted(word, 31)


def shifted(word: Any, bits: int) -> Any:
    """Shift int64 to the right and fill with zeros; numpy and torch would extend the sign."""
    return (word >> bits) & (2 ** (64 - bits) - 1)
