"""The pixels of a run on its device, where batches are gathered and augmented without crossing the bus again."""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.io import UInt8
from usvit.data.loading.pixel_store import PixelStore

SHARE = 0.25
"""Largest share of the device's free memory that the pixels take under ``auto``; the rest is for the training."""


class DeviceStore:
    """All images of a ``PixelStore`` on a device: ``pixels`` is a (N, S, S, 3) uint8 tensor that all folds share.

    Args:
        host: The images, which stay on the host too. On a CPU, both share their memory.
        device: The device.
    """

    def __init__(self, host: PixelStore, device: torch.device):
        self.host, self.pixels = host, torch.from_numpy(host.pixels).to(device)

    @property
    def lesions(self) -> UInt8 | None:
        return self.host.lesions

    def __getitem__(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return self.gather(torch.from_numpy(np.ascontiguousarray(rows)))

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the images of ``rows``, (B,) int64 on the host; a GPU is not waited for."""
        if self.pixels.is_cuda and not rows.is_pinned():
            rows = rows.pin_memory()
        return self.pixels.index_select(0, rows.to(self.pixels.device, non_blocking=True))

    def __len__(self) -> int:
        return len(self.pixels)


def place_pixels(
    store: PixelStore, device: torch.device, where: Literal["auto"] | bool, copies: int = 1
) -> PixelStore | DeviceStore:
    """Copy the pixels to the device if that is wanted.

    Args:
        store: The images.
        device: Device of the training.
        where: ``input.device_store``. ``auto``: to a GPU of whose free memory they take at most ``SHARE``.
        copies: Number of processes that do so on the same device.
    """
    if where == "auto":
        where = fits_on(device, copies * store.pixels.nbytes)
    return DeviceStore(store, device) if where else store


def fits_on(device: torch.device, size: int) -> bool:
    """Return whether ``auto`` puts that many bytes on a device: a GPU with ``SHARE`` of its free memory for them."""
    return device.type == "cuda" and size <= SHARE * _free_bytes(device)


def _free_bytes(device: torch.device) -> int:
    free: Any = torch.cuda.mem_get_info(device)[0]
    return int(free)
