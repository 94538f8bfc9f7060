"""A few training images of each class, drawn at random."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from usvit.errors import UsvitError
from usvit.seeding import derive_seed

Ints = NDArray[np.int64]


def draw_shots(targets: Ints, k: int, seed: int, draw: int) -> Ints:
    """Draw the rows of ``k`` images of each class, sorted by class; they include those of every smaller k.

    Args:
        targets: Class of each training image, of shape (n,).
        k: Images per class; every class must have at least this many (``check_shots``).
        seed: Seed of the run.
        draw: Number of the draw, from 0.
    """
    rng = np.random.default_rng(derive_seed(seed, "shots", draw))
    of_class = [rng.permutation(np.flatnonzero(targets == label)) for label in range(int(targets.max()) + 1)]
    return np.concatenate([rows[:k] for rows in of_class])


def check_shots(targets: Ints, classes: Sequence[str], k: int, smaller_validation: str) -> None:
    """Refuse to draw more images of a class than it has.

    Args:
        targets: Class of each training image, of shape (n,).
        classes: Their names.
        k: Images per class.
        smaller_validation: Key that makes the validation part smaller, for the error.

    Raises:
        UsvitError: A class, which is named, has too few images.
    """
    counts = np.bincount(targets, minlength=len(classes))
    fewest = int(counts.argmin())
    if counts[fewest] < k:
        raise UsvitError(
            f"shots asks for {k} images of each class, but class '{classes[fewest]}' has {counts[fewest]} training "
            f"images. Set shots to no more than {counts[fewest]}, or reduce {smaller_validation}, which takes images "
            "from the training."
        )
