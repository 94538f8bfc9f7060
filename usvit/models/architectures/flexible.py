"""ViTs that take patches of several sizes: FlexiViT (Beyer et al. 2023; Alabdulmohsin et al. 2023, section 5.5).

The network learns one kernel of the patch embedding and one table of positions. For a patch size p, the kernel W (k x k
pixels, per channel) is resized so that resized patches give the same tokens (pseudo-inverse resize, section 3.4):

    W_p = A W A^T,   A = pinv(R^T),   R (p x k): bicubic resizing of a line of k pixels to p

Resizing is separable, so this equals timm's ``resample_patch_embed``, which loads such weights into a plain ViT of any
patch size. The table is resized as timm does for other grids, bicubically (public code of FlexiViT: both linearly), so
that the network in training equals the plain ViT into which its weights are loaded.
"""

from typing import Any

import torch
from timm.layers import PatchEmbed, resample_abs_pos_embed, resample_patch_embed, trunc_normal_
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F


class FlexiblePatchEmbed(PatchEmbed):
    """Patch embedding of a learned kernel, for patches of several sizes: (B, C, S, S) -> (B, S / p, S / p, D).

    Args:
        old: Patch embedding of the network, whose patch size is used in evaluation.
        patches: Patch sizes to train with.
        kernel: Side of the learned kernel, in pixels.
        grid: Side of the table of positions.
    """

    def __init__(self, old: PatchEmbed, patches: tuple[int, ...], kernel: int, grid: int):
        weight = old.proj.weight
        super().__init__(
            img_size=old.img_size,
            patch_size=old.patch_size[0],
            in_chans=weight.shape[1],
            embed_dim=weight.shape[0],
            bias=old.proj.bias is not None,
            flatten=False,
            output_fmt="NHWC",
            strict_img_size=False,
        )
        self.own = old.patch_size[0]
        self.patch = self.own
        """Patch size of the next forward pass."""
        self.patches = patches
        self.proj = nn.Conv2d(weight.shape[1], weight.shape[0], kernel, kernel, bias=old.proj.bias is not None)
        self.grid_size = (grid, grid)
        for patch in {*patches, self.own} - {kernel}:
            self.register_buffer(f"_line{patch}", _pseudo_inverse(kernel, patch), persistent=False)

    def kernel(self) -> Tensor:
        """Return the kernel for the current patch size, (D, C, p, p)."""
        weight = self.proj.weight
        if self.patch == weight.shape[-1]:
            return weight
        line = getattr(self, f"_line{self.patch}").to(weight.dtype)
        return line @ weight @ line.T

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.conv2d(x, self.kernel(), self.proj.bias, stride=self.patch).permute(0, 2, 3, 1))


def make_flexible(
    network: nn.Module,
    patches: tuple[int, ...],
    *,
    kernel: int | None = None,
    grid: int | None = None,
    seed: int | None = None,
) -> FlexiblePatchEmbed:
    """Let a plain ViT take patches of several sizes.

    Args:
        network: A ViT with a linear stem and learned positions at the stem; changed in place.
        patches: Patch sizes, in pixels.
        kernel: Side of the learned kernel in pixels; None for the network's own patch size.
        grid: Side of the table of positions; None for the network's own.
        seed: Seed of a new kernel and a new table if their sizes are not the network's own; None resizes the
            network's.

    Returns:
        The network's new patch embedding, whose ``patch`` sets the patch size.

    Raises:
        ValueError: If the network is not such a ViT, or its image is not a multiple of a patch size.
    """
    embed: Any = getattr(network, "patch_embed", None)
    if not isinstance(network, VisionTransformer) or type(embed) is not PatchEmbed or embed.grid_size is None:
        raise ValueError("patches of several sizes need a plain ViT with a linear stem")
    positions = network.pos_embed
    if positions is None:
        raise ValueError("patches of several sizes need learned positions at the stem: set position to learned")
    for patch in patches:
        if embed.img_size[0] % patch or embed.img_size[0] < patch:
            raise ValueError(
                f"the image side of {embed.img_size[0]} pixels is not a multiple of the patch size {patch}"
            )
    own_kernel, own_grid = embed.patch_size[0], embed.grid_size[0]
    kernel, grid = kernel or own_kernel, grid or own_grid
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0 if seed is None else seed)
        new = FlexiblePatchEmbed(embed, patches, kernel, grid)
        if kernel == own_kernel or seed is None:
            new.proj.weight.data = resample_patch_embed(embed.proj.weight.data, [kernel, kernel]).clone()
            if embed.proj.bias is not None:
                new.proj.bias = nn.Parameter(embed.proj.bias.data.clone())
        if grid != own_grid:
            n_prefix, table = positions.shape[1] - own_grid**2, positions.data
            if seed is None:
                table = resample_abs_pos_embed(table, [grid, grid], [own_grid, own_grid], num_prefix_tokens=n_prefix)
            else:
                table = trunc_normal_(table.new_empty(1, n_prefix + grid**2, table.shape[2]), std=0.02)
            network.pos_embed = nn.Parameter(table, requires_grad=positions.requires_grad)
    for old, own in zip(embed.parameters(), new.parameters(), strict=True):
        own.requires_grad_(old.requires_grad)
    network.patch_embed = new
    network.dynamic_img_size = True  # type: ignore[misc]  # so that timm resizes the table of positions to the grid of the patches
    return new


def _pseudo_inverse(kernel: int, patch: int) -> Tensor:
    """Compute pinv(R^T), (p, k), of the bicubic resizing R of a line of k pixels to p."""
    # All columns of the images are equal; PyTorch 2.15 resizes images of a single column wrongly.
    basis = torch.eye(kernel, device="cpu")[:, None, :, None].repeat(1, 1, 1, kernel)
    resized = F.interpolate(basis, size=(patch, patch), mode="bicubic", antialias=True)[:, 0, :, 0]  # R^T: (k, p)
    return torch.linalg.pinv(resized)
