"""Resizing of position and patch embeddings to another resolution or patch size.

Patches keep their place in the image: a table of positions on a grid of 14 x 14 is resized like a small image of D
channels, bicubically, because bilinear interpolation would shrink its vectors (Touvron 2022, section 3.4.5). timm's
antialiasing smooths a table that becomes smaller, and its kernel is softer where one becomes larger (a = -0.5 instead
of -0.75); the public codes of DeiT and MAE resize without it.
"""

import re
from math import isqrt

import torch
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from torch import Tensor, nn
from torch.nn import functional as F

PATCHES, POSITIONS = "patch_embed.proj.weight", "pos_embed"
_TABLES = re.compile(r"pos_embeds\.\d+\.table")
"""Tables of patch positions, (1, N, D), for each layer or shared by all layers (``architectures/positions.py``)."""
_ROWS = re.compile(r"pos_embeds\.\d+\.[xy]_table|blocks\.\d+\.(attns\.\d+\.)?attn\.relative")
"""Tables with one row for each column, row or offset of the grid, (n, d)."""


def resize_embeddings(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Fit the patch and position embeddings of a checkpoint to a network, in place.

    The network defines the patch size, the grid, and the number of prefix positions, which belong to no patch (class
    and distillation token; none with ``no_embed_class``). The class token may have a position on one side only: the
    file's is added to the token itself, and the network's starts at zero.

    Patch projections are resized so that a resized patch gives the same tokens (pseudo-inverse resize, FlexiViT,
    Beyer et al. 2023, section 3.4). What cannot be resized is left as it is.

    Args:
        tensors: name in the network -> tensor of the checkpoint.
        model: a network with ``patch_embed``, such as timm's ViTs; other networks need no resizing.
    """
    own = dict(model.named_parameters())
    patches = tensors.get(PATCHES)
    if patches is not None and PATCHES in own and patches.ndim == own[PATCHES].ndim == 4:
        to = own[PATCHES]
        if patches.shape[:2] == to.shape[:2] and patches.shape != to.shape:
            tensors[PATCHES] = resample_patch_embed(patches, list(to.shape[-2:]))
    grid = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    if grid is None:
        return
    for key, value in tensors.items():
        if key in own and value.shape != own[key].shape and value.shape[-1:] == own[key].shape[-1:]:
            if _TABLES.fullmatch(key) and value.ndim == 3 and isqrt(value.shape[1]) ** 2 == value.shape[1] > 0:
                tensors[key] = resample_abs_pos_embed(value, list(grid), num_prefix_tokens=0)
            elif _ROWS.fullmatch(key) and value.ndim == 2 and len(value):
                rows = F.interpolate(value.T[None].float(), len(own[key]), mode="linear", align_corners=True)
                tensors[key] = rows[0].T
    if POSITIONS in own and POSITIONS in tensors:
        _resize_positions(tensors, own[POSITIONS], grid)


def _resize_positions(tensors: dict[str, Tensor], own: Tensor, grid: tuple[int, int]) -> None:
    positions = tensors[POSITIONS]
    if positions.ndim != 3 or own.ndim != 3 or len(positions) != 1:
        return
    n_prefix = own.shape[1] - grid[0] * grid[1]
    n_file_prefix = _prefix(positions.shape[1], n_prefix) if n_prefix >= 0 else None
    if n_file_prefix is None:
        return
    prefix, on_grid = positions[:, :n_file_prefix], positions[:, n_file_prefix:]
    if n_file_prefix != n_prefix:
        token = tensors.get("cls_token")
        if n_prefix == 0 and token is not None and token.shape == prefix.shape:
            tensors["cls_token"] = token + prefix
        prefix = prefix.new_zeros(1, n_prefix, positions.shape[2])
    if on_grid.shape[1] != grid[0] * grid[1] or grid[0] != grid[1]:
        on_grid = resample_abs_pos_embed(on_grid, list(grid), num_prefix_tokens=0)
    tensors[POSITIONS] = torch.cat([prefix, on_grid], dim=1) if n_file_prefix or n_prefix else on_grid


def _prefix(n_positions: int, wanted: int) -> int | None:
    """Return how many positions of a file belong to no patch (0 or 1 if the network has 0 or 1); None if unclear."""
    for n in (wanted, 1, 0) if wanted < 2 else (wanted,):
        if n < n_positions and isqrt(n_positions - n) ** 2 == n_positions - n:
            return n
    return None
