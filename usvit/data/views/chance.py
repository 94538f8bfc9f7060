"""Chance that depends on an image's seed alone, for one image or for a batch of them.

Two kinds. ``seeded`` gives libraries that draw from Python's and numpy's global generators a state of its own.
``numbers`` needs no state: it scrambles seeds, in numpy for one image and in torch for a batch, on any device, to the
same numbers. So a view is the same wherever it is computed, and however a batch is cut into portions.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.seeding import GOLDEN, scrambled, shifted

HFLIP, CHOICE, SIGMA, ORDER, BRIGHTNESS, CONTRAST, SATURATION, ERASE, TOP, LEFT, NOISE_TOP, NOISE_LEFT = range(12)
"""What each of an image's numbers decides."""
ATTEMPTS = 10
"""Boxes drawn for random erasing until one fits, as timm's."""
AREA = slice(12, 12 + ATTEMPTS)
ASPECT = slice(AREA.stop, AREA.stop + ATTEMPTS)
COUNT = ASPECT.stop


def numbers(seed: int) -> NDArray[np.float64]:
    """(COUNT,) numbers in [0, 1) of one image, multiples of 2^-24.

    Args:
        seed: in [0, 2^63).

    They are SplitMix64's first COUNT outputs (``usvit.seeding.scrambled``).
    """
    return _share(np.int64(seed) + np.arange(1, COUNT + 1, dtype=np.int64) * np.int64(GOLDEN))


def number_table(seeds: torch.Tensor) -> torch.Tensor:
    """(B,) int64 seeds to (B, COUNT) float32, each row the ``numbers`` of its seed; on the seeds' device."""
    steps = torch.arange(1, COUNT + 1, device=seeds.device) * GOLDEN
    return _share(seeds[:, None] + steps)


def _share(states: Any) -> Any:
    """int64 to [0, 1), in numpy's arrays and in torch's alike."""
    return shifted(scrambled(states), 40) * 2.0**-24


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's and numpy's global generators begin at a seed, and afterwards are what they were. Not for threads.

    Args:
        seed: in [0, 2^63).
    """
    state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - timm draws from them
    random.seed(seed)
    np.random.seed((seed >> 32, seed & 0xFFFFFFFF))  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
