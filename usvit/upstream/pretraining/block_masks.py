"""Blockwise masks of BEiT: rectangles of patches are drawn until enough of an image is masked."""

import math

import torch
from torch import Tensor

from usvit.upstream.pretraining.counter_rng import uniform

MIN_ASPECT = 0.3
"""Smallest ratio of a block's height to its width; the largest is 1 / this (Bao et al. 2022, Algorithm 1)."""
ATTEMPTS = 10
"""Number of blocks in a row that are refused until a mask is left as it is (public code of BEiT)."""
_ROUNDS = 2000  # safeguard: far more blocks than any mask needs


def block_masks(seeds: Tensor, grid: tuple[int, int], share: float, min_block: int) -> Tensor:
    """Draw one mask for each seed, independent of the other seeds of the batch.

    This follows the public code of BEiT (masking_generator.py), not Algorithm 1 of the paper: a block is smaller than
    the image in both directions, its aspect ratio is log-uniform, and it is drawn again if it masks no further patch or
    more than are wanted. A mask therefore has at most ``share`` of the patches, and seldom fewer. The paper draws the
    ratio uniformly and exceeds the share.

    Args:
        seeds: (B,) int64, seeds of the examples, on the host.
        grid: patches down, across.
        share: share of patches in (0, 1) that are masked at most, rounded down to whole patches.
        min_block: smallest block in patches, while so many are missing; at most ``share`` of the image.

    Returns:
        (B, N) bool, True where masked, N in raster order; at least one patch of each image is masked.

    Raises:
        ValueError: ``min_block`` is more than ``share`` of the patches.

    Source: Bao et al. (2022), BEiT, section 2.3; microsoft/unilm, beit/masking_generator.py.
    """
    rows, columns = grid
    wanted = math.floor(share * rows * columns)
    if min_block > wanted:
        raise ValueError(f"a block of {min_block} patches is more than {share:g} of {rows} x {columns}")
    mask = torch.zeros(len(seeds), rows, columns, dtype=torch.bool)
    refused = torch.zeros(len(seeds), dtype=torch.int64)
    row, column = torch.arange(rows)[None, :, None], torch.arange(columns)[None, None, :]
    for number in range(_ROUNDS):
        count = mask.sum((1, 2))
        short = (count < wanted) & ((refused < ATTEMPTS) | (count == 0))
        if not short.any():
            break
        # Block k of an example uses the same numbers, whether other examples are finished or not.
        area, aspect, top, left = uniform(seeds, 4, f"beit/{number}").double().unbind(1)
        missing = wanted - count
        area = min_block + area * (missing - min_block)
        aspect = (math.log(MIN_ASPECT) * (1 - 2 * aspect)).exp()
        height, width = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
        # A grid of a single row or column has blocks of one.
        fits = (height < max(rows, 2)) & (width < max(columns, 2))
        height, width = height[:, None, None], width[:, None, None]
        first_row = (top[:, None, None] * (rows - height + 1)).floor()
        first_column = (left[:, None, None] * (columns - width + 1)).floor()
        inside = (row >= first_row) & (row < first_row + height)
        inside = inside & (column >= first_column) & (column < first_column + width)
        new = (inside & ~mask).sum((1, 2))
        taken = short & fits & (new > 0) & (new <= missing)
        mask |= inside & taken[:, None, None]
        refused = torch.where(taken, 0, refused + 1)
    return mask.flatten(1)
