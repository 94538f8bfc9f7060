"""Blockwise masks of BEiT: rectangles of patches are drawn until enough of an image is masked."""

import torch
from torch import Tensor

from usvit.pretraining.counter_rng import uniform

MIN_ASPECT = 0.3
"""Smallest ratio of a block's height to its width; the largest is 1 / this (Bao et al. 2022, Algorithm 1)."""
_ROUNDS = 200  # safeguard: far more blocks than any mask needs


def block_masks(seeds: Tensor, grid: tuple[int, int], share: float, min_block: int) -> Tensor:
    """Draw one mask for each seed, independent of the other seeds of the batch.

    Blocks are united until more than ``share`` of the patches are masked, as in the paper. (The authors' code leaves
    out a block that would exceed the share, and so masks slightly fewer patches.)

    Args:
        seeds: (B,) int64, seeds of the examples, on the host.
        grid: patches down, across.
        share: share of patches in (0, 1) that the mask exceeds.
        min_block: smallest block in patches, while so many are missing; at most ``share`` of the image.

    Returns:
        (B, N) bool, True where masked, N in raster order.

    Raises:
        ValueError: ``min_block`` is more than ``share`` of the patches.

    Source: Bao et al. (2022), BEiT, Algorithm 1.
    """
    rows, columns = grid
    wanted = share * rows * columns
    if min_block > wanted:
        raise ValueError(f"a block of {min_block} patches is more than {share:g} of {rows} x {columns}")
    mask = torch.zeros(len(seeds), rows, columns, dtype=torch.bool)
    row, column = torch.arange(rows)[None, :, None], torch.arange(columns)[None, None, :]
    for number in range(_ROUNDS):
        count = mask.sum((1, 2))
        short = count <= wanted
        if not short.any():
            break
        # Block k of an example uses the same numbers, whether other examples are finished or not.
        area, aspect, top, left = uniform(seeds, 4, f"beit/{number}").double().unbind(1)
        remaining = wanted - count
        area = (remaining + area * (min_block - remaining)).clamp(min=1)  # Rand(16, 0.4 N - |M|)
        aspect = MIN_ASPECT + aspect * (1 / MIN_ASPECT - MIN_ASPECT)
        height = (area * aspect).sqrt().round().clamp(1, rows)[:, None, None]
        width = (area / aspect).sqrt().round().clamp(1, columns)[:, None, None]
        first_row = (top[:, None, None] * (rows - height + 1)).floor()
        first_column = (left[:, None, None] * (columns - width + 1)).floor()
        inside = (row >= first_row) & (row < first_row + height)
        inside = inside & (column >= first_column) & (column < first_column + width)
        mask |= inside & short[:, None, None]
    return mask.flatten(1)
