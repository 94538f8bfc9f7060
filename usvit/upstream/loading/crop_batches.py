"""Training batches of decoded images, whose crops are cut on the device.

The processes that make batches draw the windows of the crops. They send row numbers if the images are on the device,
and otherwise the squares of the images.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.datasets import UpstreamDataset
from usvit.data.loading import Batch, ImageStore, InfiniteLoader, LoaderArguments, copied_ahead
from usvit.data.transforms import Views, cut_batch
from usvit.seeding import derive_seed


class CropBatches(InfiniteLoader):
    """Endless batches like those of ``AugmentedDataset`` over a store, made on the device.

    Args:
        source: the images, for their order and targets.
        store: the same images, decoded, on the host or on the device.
        views: the views of an example, whose windows are drawn; ``DeviceViews`` does the rest.
        local: the local crops of an example.
        on: device that crops.
        **arguments: those of ``InfiniteLoader``.
    """

    device: torch.device

    def __init__(
        self,
        source: UpstreamDataset,
        store: ImageStore,
        views: Sequence[Views],
        local: Sequence[Views] = (),
        *,
        on: torch.device,
        **arguments: Unpack[LoaderArguments],
    ):
        self.device = on
        self._store, self._several = store, len(views) > 1
        self._sides = {"images": views[0].image_size} | ({"local": local[0].image_size} if local else {})
        super().__init__(_DrawnWindows(source, store, views, local), **arguments)

    def iterate(self, start: int, stop: int) -> Generator[Batch]:
        """Iterate over batches ``start`` to ``stop - 1``; on a GPU, nothing waits for them to be made."""
        with closing(copied_ahead(super().iterate(start, stop), self.device)) as batches:
            for batch in batches:
                yield self._made(batch)

    def _made(self, batch: Batch) -> Batch:
        squares = batch["squares"] if "squares" in batch else self._store.gather(batch["index"])
        made: Batch = {}
        for name, side in self._sides.items():
            crops = [cut_batch(squares, windows, side) for windows in batch[f"{name}_windows"].unbind(1)]
            made[name] = torch.stack(crops, dim=1) if name == "local" or self._several else crops[0]
        return {
            "images": made.pop("images"),
            **{name: batch[name] for name in ("targets", "seeds", "index")},
            **made,
        }


class _DrawnWindows:
    """Windows of the crops of a batch. It holds nothing that is on a GPU, since it is sent to processes."""

    def __init__(self, source: UpstreamDataset, store: ImageStore, views: Sequence[Views], local: Sequence[Views]):
        self.source, self.sizes = source, store.sizes
        self.views, self.local = tuple(views), tuple(local)
        self.pixels = None if store.placed else store.pixels

    def __len__(self) -> int:
        return len(self.source)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return self.source.order(generator)

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        index = torch.tensor([at for at, _ in items], dtype=torch.int64)
        return {
            "targets": torch.from_numpy(self.source.targets[index]),
            "seeds": torch.tensor([seed for _, seed in items], dtype=torch.int64),
            "index": index,
            "images_windows": self._windows(self.views, items, None if len(self.views) == 1 else "view"),
            **({"local_windows": self._windows(self.local, items, "local")} if self.local else {}),
            **({} if self.pixels is None else {"squares": self.pixels[index]}),
        }

    def _windows(self, views: Sequence[Views], items: Sequence[tuple[int, int]], kind: str | None) -> torch.Tensor:
        """Draw the windows, (B, views, 9) int64, with the seeds of ``AugmentedDataset``."""
        drawn = []
        for at, seed in items:
            width, height = self.sizes[at].tolist()
            seeds = [seed if kind is None else derive_seed(seed, kind, number) for number in range(len(views))]
            drawn.append([view.window(width, height, own) for view, own in zip(views, seeds, strict=True)])
        return torch.tensor(drawn, dtype=torch.int64)
