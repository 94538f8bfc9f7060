"""The linear map over patches of a ResMLP, and the sparsity of its matrices."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.explaining.token_layout import Grid, grid_of

THRESHOLD = 0.05
"""A weight counts as small if its absolute value is lower than this share of the largest of its matrix."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MixingLayer:
    """One layer of a ResMLP: X + A X over patches, then an MLP of the matrices B and C over channels."""

    layer: str
    """Name of the layer, such as ``blocks.3``."""
    rows: Array
    """(N, N), the matrix A: row i has the weights with which patch i reads all patches, in raster order."""
    sparsity: float
    """Share in [0, 1] of the weights of A that are small."""
    mlp_sparsity: tuple[float, float]
    """Shares of B and C."""


def sparsity(weight: Tensor, threshold: float = THRESHOLD) -> float:
    """Return the share of weights whose absolute value is lower than ``threshold`` times the largest absolute value.

    Args:
        weight: any shape; without a weight other than 0, the share is 0.
        threshold: in (0, 1].

    Source: Touvron (2022), thesis, section 4.3.3, Fig. 4.3.
    """
    size = weight.detach().double().abs()
    return float((size < threshold * size.max()).double().mean())


def mixing_layers(model: nn.Module, name: str) -> tuple[Grid, list[MixingLayer]]:
    """Return the grid of patches and the linear maps over patches of all layers.

    Args:
        model: a ResMLP with one linear map over patches in each layer.
        name: name of the network in error messages.

    Raises:
        UsvitError: the network has no such map.

    Source: Touvron (2022), thesis, section 4.3.3, Fig. 4.2 and 4.3.
    """
    grid = grid_of(model)
    found: list[MixingLayer] = []
    for layer, block in model.named_modules():
        linear, mlp = getattr(block, "linear_tokens", None), getattr(block, "mlp_channels", None)
        if grid is None or not isinstance(linear, nn.Linear) or mlp is None:
            continue
        if linear.weight.shape == (grid[0] * grid[1],) * 2:  # not that of class-MLP, which reads into one token
            of_mlp = sparsity(mlp.fc1.weight), sparsity(mlp.fc2.weight)
            rows = linear.weight.detach().double().numpy()
            found.append(MixingLayer(layer, rows, sparsity(linear.weight), of_mlp))
    if grid is None or not found:
        raise UsvitError(
            f"{name} has no linear map over its patches, as a ResMLP has. Use another --method: rollout or attention "
            "for a transformer, gradcam or occlusion for any network."
        )
    return grid, found


def central_patches(grid: Grid, side: int = 6) -> list[list[int]]:
    """Return the raster indices of the central ``side`` x ``side`` patches by row; of all, if the grid is smaller.

    Source: Touvron (2022), thesis, Fig. 4.2, which shows 6 x 6 of 14 x 14 patches.
    """
    (top, rows), (left, columns) = (((n - min(side, n)) // 2, min(side, n)) for n in grid)
    return [[(top + row) * grid[1] + left + column for column in range(columns)] for row in range(rows)]
