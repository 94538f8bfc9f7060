"""Run a network on images of another side than its own, without changing its weights.

Convolutional networks need nothing. A ViT with learned positions at the stem resizes its table of positions in each
forward pass, as the public code of DINO does (Caron et al. 2021), and the gradient reaches the table:

    E' = R E R^T for each channel,   R (h' x h): bicubic resizing of a line of h positions to h', without antialiasing

That code resizes by (h' + 0.1) / h instead of h' / h, against rounding errors, which moves the last patches of a crop.

As a product of matrices, its gradient is the same at every repetition, which PyTorch's ``interpolate`` does not
guarantee on a GPU.
"""

from contextlib import nullcontext
from typing import Any

import torch
from timm.layers import PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F


def accept_side(network: nn.Module, side: int) -> None:
    """Let a network take square images of another side too, through ``forward_at_side``.

    Args:
        network: A network of the zoo; its weights and its own side stay.
        side: Side of the images in pixels.

    Raises:
        ValueError: If the network cannot take them.
    """
    embed: Any = getattr(network, "patch_embed", None)
    if _has_table(network) and isinstance(embed, PatchEmbed):
        embed.strict_img_size = False
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            forward_at_side(network, torch.zeros(1, 3, side, side))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())[:200].rstrip(".") or "its number of patches is fixed") from error
    finally:
        network.train(training)


def forward_at_side(network: nn.Module, images: Tensor) -> Any:
    """Return the output of a network for images (B, 3, S, S) of any side that it accepts (``accept_side``)."""
    return functional_call(network, _positions(network, images.shape[-1]), (images,))


def _has_table(network: nn.Module) -> bool:
    """Return whether the network is a ViT with a table of positions that it does not resize itself."""
    return isinstance(network, VisionTransformer) and network.pos_embed is not None and not network.dynamic_img_size


def _positions(network: Any, side: int) -> dict[str, Tensor]:
    """Return the table of positions for images of another side, by its name; nothing if it need not change."""
    if not _has_table(network) or not isinstance(network.patch_embed, PatchEmbed):
        return {}
    table, (rows, columns) = network.pos_embed, network.patch_embed.grid_size
    new = side // network.patch_embed.patch_size[0]
    if (new, new) == (rows, columns):
        return {}
    n_prefix = table.shape[1] - rows * columns
    with _full_precision(table.device.type):
        grid = table[:, n_prefix:].unflatten(1, (rows, columns))
        grid = torch.einsum("ph,bhwd->bpwd", _line(rows, new, table), grid)
        grid = torch.einsum("qw,bpwd->bpqd", _line(columns, new, table), grid)
    return {"pos_embed": torch.cat([table[:, :n_prefix], grid.flatten(1, 2)], dim=1)}


def _full_precision(device_type: str) -> Any:
    can_be_mixed = torch.amp.is_autocast_available(device_type)  # not on the device meta
    return torch.autocast(device_type, enabled=False) if can_be_mixed else nullcontext()


def _line(old: int, new: int, like: Tensor) -> Tensor:
    """Return the matrix (new, old) that resizes a line of values bicubically."""
    line = torch.eye(old, device=like.device, dtype=like.dtype)
    return F.interpolate(line[None, None], size=(new, old), mode="bicubic")[0, 0]
