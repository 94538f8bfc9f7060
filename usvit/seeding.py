"""Seeds for every purpose, derived from the one seed of a run.

Each purpose (a fold's initial weights, an epoch's order, one image's augmentation) gets
a seed of its own that depends on nothing but the run's seed and the purpose's name. So
nothing has to be replayed to resume, and the number of workers changes nothing.
"""

import hashlib


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A seed in [0, 2**63) for ``purpose``; equal arguments give equal seeds on every machine.

    >>> derive_seed(0, "order", 3) == derive_seed(0, "order", 3)
    True
    >>> derive_seed(0, "order", 3) == derive_seed(0, "order", 4)
    False
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
