"""Training batches that are gathered and augmented on the device.

The processes that make batches prepare only what is small: row numbers, targets, and what the augmentation draws.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.io import UInt8
from usvit.data.loading.device_store import DeviceStore
from usvit.data.loading.infinite_loader import Batch, InfiniteLoader
from usvit.data.loading.pixel_store import SINGLE_IMAGES, PixelStore, ShuffledRows, Store, TrainBatches, UnitsOfRows
from usvit.data.transforms import BatchDraws, Policy, augment_batch, draw_batch


def train_batches(
    store: Store,
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    batch_size: int,
    augment: Policy | None,
    seed: int,
    workers: int = 0,
    device: torch.device | None = None,
    units: UnitsOfRows = SINGLE_IMAGES,
    masked: NDArray[np.bool_] | None = None,
) -> InfiniteLoader:
    """Make the endless training batches of a store, on the host or on the device.

    Args:
        store, rows, targets, batch_size, augment, seed, workers, units: As for ``TrainBatches``.
        device: Device that augments; None for the processes that make the batches.
        masked: As for ``TrainBatches``, which then makes the batches: lesions are moved on the host only.
    """
    order: dict[str, Any] = {"batch_size": batch_size, "augment": augment, "seed": seed, "workers": workers}
    order["units"] = units
    if masked is None:
        if isinstance(store, DeviceStore) and (augment is None or device is not None):
            return DeviceBatches(store, rows, targets, **order, device=store.pixels.device)
        if isinstance(store, PixelStore) and augment is not None and device is not None:
            return DeviceBatches(store, rows, targets, **order, device=device)
    on_host = store.host if isinstance(store, DeviceStore) else store
    return TrainBatches(on_host, rows, targets, **order, masked=masked)


class DeviceBatches(InfiniteLoader):
    """Endless training batches like ``TrainBatches``, whose ``images`` and ``targets`` are on the device.

    Args:
        store: Pixels on the device, or on the host, from where those of each batch are then copied.
        rows, targets, batch_size, augment, seed, workers, units: As for ``TrainBatches``.
        device: Device that gathers and augments.
    """

    device: torch.device

    def __init__(
        self,
        store: PixelStore | DeviceStore,
        rows: NDArray[np.int64],
        targets: NDArray[np.int64],
        *,
        batch_size: int,
        augment: Policy | None,
        seed: int,
        workers: int = 0,
        units: UnitsOfRows = SINGLE_IMAGES,
        device: torch.device,
    ):
        self._store, self.device = store, device
        super().__init__(
            _Drawn(store, rows, targets, augment, units), batch_size=batch_size, seed=seed, workers=workers
        )

    def iterate(self, start: int, stop: int) -> Generator[Batch]:
        """Iterate over batches ``start`` to ``stop - 1``; on a GPU, nothing waits for them to be made."""
        with closing(super().iterate(start, stop)) as batches:
            for batch in batches:
                yield self._made(batch)

    def _made(self, batch: dict[str, Any]) -> Batch:
        if isinstance(self._store, DeviceStore):
            images = self._store.gather(batch["rows"])
        else:
            images = batch["images"].to(self.device, non_blocking=True)
        if "draws" in batch:
            draws: BatchDraws = batch["draws"]
            images = augment_batch(images, draws.to(self.device))
        counted = {key: batch[key] for key in ("targets", "units", "votes") if key in batch}
        return {"images": images} | {key: value.to(self.device, non_blocking=True) for key, value in counted.items()}


class _Drawn(ShuffledRows):
    """Rows, targets and draws of a batch. It holds nothing that is on the device, since it is sent to processes."""

    def __init__(
        self,
        store: PixelStore | DeviceStore,
        rows: NDArray[np.int64],
        targets: NDArray[np.int64],
        augment: Policy | None,
        units: UnitsOfRows,
    ):
        host = store.host if isinstance(store, DeviceStore) else store
        super().__init__(rows, targets, augment, units)
        self.size = host.pixels.shape[1]
        self.pixels = None if isinstance(store, DeviceStore) else host.pixels
        self.lesions: UInt8 | None = host.lesions
        self.boxes = None if augment is None else host.boxes

    def batch(self, items: Sequence[tuple[int, int]]) -> Any:
        at = [position for position, _ in items]
        rows = self.rows[at]
        batch: dict[str, Any] = {**self.counted(at)}
        if self.pixels is None:
            batch["rows"] = torch.from_numpy(rows)
        else:
            batch["images"] = torch.from_numpy(self.pixels[rows])
        if self.augment is not None and self.boxes is not None:
            lesions = repeat(None, len(rows)) if self.lesions is None else self.lesions[rows]
            seeds = [seed for _, seed in items]
            batch["draws"] = draw_batch(self.augment, self.size, seeds, lesions, self.boxes[rows])
        return batch
