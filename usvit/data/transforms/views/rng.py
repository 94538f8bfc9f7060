"""Random numbers that depend only on the seed of an image, for one image or a batch.

``seeded`` sets the global generators of Python and numpy for libraries that draw from them. ``numbers`` has no state:
it maps seeds to the same numbers in numpy for one image and in torch for a batch, on any device. So a view is the same
wherever it is computed, and however a batch is split.
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
"""Index of each random number of an image, by the choice that it makes."""
ATTEMPTS = 10
"""Number of boxes that are drawn for random erasing until one fits, as in timm."""
AREA = slice(12, 12 + ATTEMPTS)
ASPECT = slice(AREA.stop, AREA.stop + ATTEMPTS)
COUNT = ASPECT.stop


def numbers(seed: int) -> NDArray[np.float64]:
    """Return (COUNT,) random numbers of one image in [0, 1), multiples of 2^-24.

    They are the first COUNT outputs of SplitMix64 (``usvit.seeding.scrambled``).

    Args:
        seed: In [0, 2^63).
    """
    return _share(np.int64(seed) + np.arange(1, COUNT + 1, dtype=np.int64) * np.int64(GOLDEN))


def number_table(seeds: torch.Tensor) -> torch.Tensor:
    """Return (B, COUNT) float32 for (B,) int64 seeds, on the same device: the ``numbers`` of each seed."""
    steps = torch.arange(1, COUNT + 1, device=seeds.device) * GOLDEN
    return _share(seeds[:, None] + steps)


def _share(states: Any) -> Any:
    """Map int64 states to [0, 1), for arrays of numpy and torch alike."""
    return shifted(scrambled(states), 40) * 2.0**-24


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python and numpy, and restore them afterwards. It is not thread-safe.

    Args:
        seed: In [0, 2^63).
    """
    state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - timm draws from them
    random.seed(seed)
    np.random.seed((seed >> 32, seed & 0xFFFFFFFF))  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
