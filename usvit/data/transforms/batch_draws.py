"""What an augmentation policy draws for a batch, as small arrays that a loader's process hands to the device.

The host draws everything, with the generators and in the order of ``Policy``, so that the same seed gives the same view
and strengths wherever the pixels are changed. Noise comes at about one sample per grain and is enlarged on the device.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usvit.data.io import UInt8
from usvit.data.transforms.grey_changes import GreyChange
from usvit.data.transforms.policies import Policy, picture_of

Box = tuple[int, int, int, int]
"""Top, bottom, left and right of the picture inside the black borders; all 0 for a black image."""
KERNEL = 7
"""Side of the filters, into whose middle smaller kernels are placed."""


class WaveDraws(NamedTuple):
    """Speckle or haze of n of the images."""

    row: Tensor
    """(n,) int64, index of the image in the batch."""
    strength: Tensor
    """(n, 2) float32: exponent of the speckle and 0, or strength and reach of the haze."""
    waves: Tensor
    """(n, 2, R, C) float16, the noise; that of smaller pictures is in the upper left."""
    size: Tensor
    """(n, 2) int64, rows and columns of the noise that are used."""


class BatchDraws(NamedTuple):
    """Changes of B images, on the host or a device."""

    matrix: Tensor
    """(B, 2, 3) float32, from a pixel (x, y) of the window to one of the image (``View.matrix``)."""
    box: Tensor
    """(B, 4) int64, ``Box`` of each image."""
    table: Tensor
    """(B, 256) uint8, new value of each grey level inside the box."""
    depth_gain: Tensor
    """(B,) float32, exponent of the gain, 0 for none."""
    speckle: WaveDraws
    haze: WaveDraws
    filter_row: Tensor
    """(m,) int64, index of each filtered image."""
    kernel: Tensor
    """(m, KERNEL, KERNEL) float32."""

    def to(self, device: torch.device) -> "BatchDraws":
        """Copy to a device; from pinned memory, this does not wait for it."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        speckle, haze = (WaveDraws(*map(moved, draws)) for draws in (self.speckle, self.haze))
        others = {key: moved(value) for key, value in self._asdict().items() if isinstance(value, Tensor)}
        return self._replace(speckle=speckle, haze=haze, **others)


def box_of(image: UInt8) -> Box:
    """Return the ``Box`` of an image, (S, S, 3) uint8."""
    if not image.any():
        return 0, 0, 0, 0
    rows, columns = picture_of(image)
    return int(rows.start), int(rows.stop), int(columns.start), int(columns.stop)


def draw_batch(
    policy: Policy, size: int, seeds: Sequence[int], lesions: Iterable[UInt8 | None], boxes: NDArray[np.int64]
) -> BatchDraws:
    """Draw the changes of a batch.

    Args:
        policy: The augmentation.
        size: Side of the images in pixels.
        seeds: Seed of each image.
        lesions: Lesion cells of each image, or None where unknown.
        boxes: (B, 4) ``Box`` of each image.
    """
    views, changes = [], []
    for seed, lesion, (top, bottom, left, right) in zip(seeds, lesions, boxes.tolist(), strict=True):
        view, change = policy.draw(seed, lesion, (bottom - top, right - left) if bottom else None)
        views.append(view.matrix(size))
        changes.append(change)
    identity = np.arange(256, dtype=np.uint8)
    speckle = [(row, (c.speckle.exponent, 0.0), c.speckle.waves) for row, c in enumerate(changes) if c.speckle]
    haze = [
        (row, (float(c.haze.strength), float(c.haze.reach)), c.haze.waves) for row, c in enumerate(changes) if c.haze
    ]
    filters = [(row, kernel) for row, kernel in enumerate(map(_kernel, changes)) if kernel is not None]
    kernels = np.zeros((len(filters), KERNEL, KERNEL), dtype=np.float32)
    for index, (_, kernel) in enumerate(filters):
        edge = (KERNEL - len(kernel)) // 2
        kernels[index, edge : KERNEL - edge, edge : KERNEL - edge] = kernel
    return BatchDraws(
        matrix=torch.from_numpy(np.stack(views).astype(np.float32)),
        box=torch.from_numpy(boxes),
        table=torch.from_numpy(np.stack([identity if c.table is None else c.table for c in changes])),
        depth_gain=torch.tensor([c.depth_gain or 0.0 for c in changes], dtype=torch.float32),
        speckle=_packed(speckle),
        haze=_packed(haze),
        filter_row=torch.tensor([row for row, _ in filters], dtype=torch.int64),
        kernel=torch.from_numpy(kernels),
    )


def _packed(drawn: list[tuple[int, tuple[float, float], NDArray[np.float32]]]) -> WaveDraws:
    sizes = np.array([waves.shape[1:] for _, _, waves in drawn], dtype=np.int64).reshape(-1, 2)
    packed = np.zeros((len(drawn), 2, *sizes.max(axis=0, initial=1)), dtype=np.float16)
    for index, (_, _, waves) in enumerate(drawn):
        packed[index, :, : waves.shape[1], : waves.shape[2]] = waves
    return WaveDraws(
        row=torch.tensor([row for row, _, _ in drawn], dtype=torch.int64),
        strength=torch.tensor([strength for _, strength, _ in drawn], dtype=torch.float32).reshape(-1, 2),
        waves=torch.from_numpy(packed),
        size=torch.from_numpy(sizes),
    )


def _kernel(change: GreyChange) -> NDArray[np.floating] | None:
    """Return the two-dimensional kernel of a filter."""
    return change.sharpening if change.smoothing is None else np.outer(change.smoothing, change.smoothing)
