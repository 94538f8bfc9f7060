"""Training batches of phantoms with everything that is known about them: class, signs and lesion mask."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.io import UInt8
from usvit.data.loading import AugmentedRows, Batch, InfiniteLoader, PixelStore, Store
from usvit.data.transforms import CELLS, Policy, Preprocessing, lesion_cells
from usvit.progress import Progress, task
from usvit.resources import usable_cores
from usvit.seeding import derive_seed
from usvit.upstream.sources.generated import PhantomSource

_MARGIN_PX = 20
"""Rows that stay below a lesion when a phantom is cut, of ``FINEST_GRID``; shadow and enhancement begin there."""


class SignBatches(InfiniteLoader):
    """Endless batches of augmented phantoms.

    Each has ``images`` (B, S, S, 3) uint8, ``targets`` (B,) int64, ``lesions`` (B, CELLS, CELLS) uint8, ``masked`` (B,)
    bool, and ``signs`` (B, 8) float32, the standardised signs of each lesion (``PhantomSource.signs``), NaN without a
    lesion.

    Args:
        source: The phantoms.
        store: Their pixels and lesions, as ``phantom_store`` makes them.
        batch_size: Images per batch.
        augment: Augmentation of one image, or None.
        seed: Seed of order and augmentation.
        workers: Processes that augment; 0 for the main process.
        rank, world: Share of each batch for this process, and number of shares.
    """

    def __init__(
        self,
        source: PhantomSource,
        store: PixelStore,
        *,
        batch_size: int,
        augment: Policy | None,
        seed: int,
        workers: int = 0,
        rank: int = 0,
        world: int = 1,
    ):
        signs = np.stack([source.signs(index) for index in range(len(source))]).astype(np.float32)
        examples = _WithSigns(store, source.targets, signs, augment)
        super().__init__(examples, batch_size=batch_size, seed=seed, workers=workers, rank=rank, world=world)


class _WithSigns(AugmentedRows):
    def __init__(
        self, store: Store, targets: NDArray[np.int64], signs: NDArray[np.float32], augment: Policy | None
    ) -> None:
        everything = np.arange(len(targets))
        super().__init__(store, everything, targets, augment, masked=np.ones(len(targets), dtype=bool))
        self.signs = signs

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        at = [position for position, _ in items]
        return {**super().batch(items), "signs": torch.from_numpy(self.signs[at])}


def phantom_store(
    source: PhantomSource, preprocessing: Preprocessing, least_height: float, seed: int, progress: Progress
) -> PixelStore:
    """Render all phantoms of a source, cut each to a random height, and resize it with its lesion.

    A scanner's image is often wider than deep, but a phantom is square. A cut leaves out the deepest rows, and never
    the lesion.

    Args:
        source: The phantoms.
        preprocessing: Size of the images, and how they are resized.
        least_height: Smallest height after the cut, as a share of the width, in (0, 1]; 1 for no cut.
        seed: Seed of the heights.
        progress: Shown while phantoms are rendered.
    """
    side = preprocessing.image_size
    pixels = np.empty((len(source), side, side, 3), dtype=np.uint8)
    lesions = np.empty((len(source), CELLS, CELLS), dtype=np.uint8)

    def fill(index: int) -> None:
        image, mask = source.with_mask(index)
        share = np.random.default_rng(derive_seed(seed, "height", index)).uniform(least_height, 1)
        kept = max(round(share * len(image)), _end_of(mask))
        pixels[index] = preprocessing.resized(np.ascontiguousarray(image[:kept]))
        lesions[index] = lesion_cells(preprocessing.resized_mask(mask[:kept]))

    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        task(progress, "making phantoms", len(source), "images") as advance,
    ):
        for done, _ in enumerate(pool.map(fill, range(len(source))), start=1):
            advance(done)
    return PixelStore(pixels, lesions)


def _end_of(mask: NDArray[np.bool_] | UInt8) -> int:
    """Return the number of rows down to ``_MARGIN_PX`` below the lesion, at most all; 0 without a lesion."""
    rows = np.flatnonzero(mask.any(axis=1))
    return min(len(mask), int(rows[-1]) + _MARGIN_PX) if len(rows) else 0
