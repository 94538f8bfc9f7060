"""Analysis of the parameters of a network: position embeddings and filters of the first layer."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.explaining.token_layout import Grid, grid_of
from usvit.models import Positions

_N_COMPONENTS = 28
"""Number of components shown by Dosovitskiy et al. (2021), Fig. 7, left."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Similarity:
    """Similarity of the position embeddings of patches."""

    grid: Grid
    cosine: Array
    """(N, N) in [-1, 1], patches in raster order."""

    def mean_of_pairs(self) -> tuple[float | None, float | None, float | None]:
        """Return the mean similarity of pairs of patches in the same row, in the same column, and of all others."""
        row, column = np.divmod(np.arange(len(self.cosine)), self.grid[1])
        same_row, same_column = row[:, None] == row, column[:, None] == column
        one = same_row & same_column  # a patch with itself
        kinds = (same_row & ~one, same_column & ~one, ~same_row & ~same_column)
        first, second, third = (float(self.cosine[kind].mean()) if kind.any() else None for kind in kinds)
        return first, second, third


def position_similarity(model: nn.Module, name: str) -> Similarity:
    """Compute the cosine similarity of the position embeddings of all pairs of patches.

    Class, distillation and register tokens have no position and are left out. If every layer adds its own positions,
    those of the first layer are used.

    Args:
        model: a network with absolute positions.
        name: name of the network in error messages.

    Raises:
        UsvitError: the network has no such embeddings.

    Source: Dosovitskiy et al. (2021), section 4.5, Fig. 7 (centre).
    """
    grid, table = grid_of(model), _table(model)
    if grid is None or table is None or table.shape[-2] < grid[0] * grid[1]:
        raise UsvitError(
            f"{name} adds no position embeddings to its patches. Use another --method: rollout, attention, gradcam, "
            "occlusion or filters."
        )
    patches = table.detach().double().flatten(0, -2)[-grid[0] * grid[1] :]
    unit = nn.functional.normalize(patches, dim=-1)
    return Similarity(grid, (unit @ unit.T).clamp(-1, 1).numpy())


def _table(model: nn.Module) -> Tensor | None:
    ours = next((module for module in model.modules() if isinstance(module, Positions)), None)
    if ours is not None:
        return ours.of_patches()
    table = getattr(model, "pos_embed", None)
    return table if isinstance(table, Tensor) and table.ndim == 3 else None


@dataclass(frozen=True)
class Filters:
    """Principal components of the filters of the first layer."""

    layer: str
    n_filters: int
    components: Array
    """(C, h, w, 3), unit vectors; the first explains the most. The sign is arbitrary."""
    explained: Array
    """(C,) share of the variance."""


def filter_components(model: nn.Module, name: str, n: int = _N_COMPONENTS) -> Filters:
    """Compute the principal components of the patch embedding, or of the first convolution of the colour image.

    Args:
        model: any network whose first layer is a convolution larger than one pixel.
        name: name of the network in error messages.
        n: maximum number of components.

    Raises:
        UsvitError: the network has no such layer.

    Source: Dosovitskiy et al. (2021), section 4.5, Fig. 7 (left).
    """
    seen = (
        (layer, module.weight.detach().double())
        for layer, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and module.in_channels == 3 and min(module.kernel_size) > 1
    )
    layer, weight = next(seen, ("", None))
    if weight is None:
        raise UsvitError(f"{name} has no first-layer filters that could be shown (method filters).")
    rows = weight.flatten(1)
    rows = rows - rows.mean(dim=0)
    _, singular, components = torch.linalg.svd(rows, full_matrices=False)
    variance = singular**2
    total = variance.sum()
    n = min(n, int((singular > singular[0] * 1e-9).sum())) if total > 0 else 0
    if n == 0:
        raise UsvitError(f"All filters of {name} ({layer}) are the same, so they have no components.")
    shown = components[:n].unflatten(1, weight.shape[1:]).permute(0, 2, 3, 1)
    return Filters(layer, len(rows), shown.numpy(), (variance[:n] / total).numpy())
