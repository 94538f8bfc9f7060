"""Images as sequences of patches, and a way into a ViT between its stem and its blocks.

Masked prediction hides patches. After the stem, both ways of hiding are one line: MAE takes tokens away, BEiT and the
original ViT put others in their place. The stem sees every patch, so it must not mix them; a linear stem does not, nor
does the hMLP stem ("we can equivalently mask the patches before or after the patch-processing stage", Three things,
section 5), but stems of overlapping convolutions do.
"""

from dataclasses import dataclass
from typing import Any

import torch
from timm.layers import PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.models.architectures.axial import AxialAttention
from usvit.models.architectures.positions import RelativeAttention
from usvit.models.architectures.stems import HMLPStem
from usvit.models.architectures.vit import ViT

KNOWN = "vit_ti16, vit_s16, vit_b16 (usvit models list), with model.vit.stem linear, hmlp_bn or hmlp_ln"


def patchify(images: Tensor, patch: int) -> Tensor:
    """(B, C, H, W) -> (B, N, patch * patch * C): patches in raster order, as a ViT's tokens; in each rows, columns,
    channels (He et al. 2022, public code).

    Raises:
        ValueError: H or W is no multiple of ``patch``.
    """
    batch, channels, height, width = images.shape
    if height % patch or width % patch:
        raise ValueError(f"images of {height} x {width} are not a multiple of patches of {patch}")
    rows = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return rows.permute(0, 2, 4, 3, 5, 1).reshape(batch, -1, patch * patch * channels)


def unpatchify(patches: Tensor, patch: int, grid: tuple[int, int]) -> Tensor:
    """What undoes ``patchify``: (B, N, patch * patch * C) -> (B, C, grid[0] * patch, grid[1] * patch)."""
    rows, columns = grid
    batch, channels = len(patches), patches.shape[-1] // patch**2
    pixels = patches.reshape(batch, rows, columns, patch, patch, channels)
    return pixels.permute(0, 5, 1, 3, 2, 4).reshape(batch, channels, rows * patch, columns * patch)


@dataclass(frozen=True)
class Tokens:
    """A ViT's patch tokens: facts about them, and the network's two halves.

    It holds no network, so that a running mean's copy, or a wrapped one, can be handed in:

        tokens = Tokens.of(network, "beit")                                 # or UsvitError
        patches = tokens.embed(network, images)                             # (B, N, D)
        patches = torch.where(mask[..., None], mask_token, patches)         # BEiT: some replaced
        prefix, patches = tokens.encode(network, patches)                   # (B, P, D), (B, N, D)
        prefix, patches = tokens.encode(network, patches, visible)          # MAE: (B, V) indices -> (B, V, D)
    """

    patch: int
    """Side, in pixels."""
    grid: tuple[int, int]
    """Patches down, across."""
    width: int
    """D."""
    n_prefix: int
    """P: class, distillation and register tokens before the patches."""

    @classmethod
    def of(cls, network: nn.Module, objective: str, *, subsets: bool = False) -> "Tokens":
        """The facts of a network of the zoo.

        Args:
            network: any.
            objective: for the error's text.
            subsets: ``encode`` will be called with ``visible``: positions must then belong to tokens at the stem.

        Raises:
            UsvitError: it is no plain ViT, its stem mixes patches, or its attention needs all of them.
        """
        if not isinstance(network, VisionTransformer):
            kind = type(network).__name__
            raise UsvitError(
                f"objective {objective} masks the tokens of a plain ViT, and a {kind} is none. Use {KNOWN}."
            )
        embed: Any = network.patch_embed
        if type(embed) not in (PatchEmbed, HMLPStem) or network.dynamic_img_size:
            raise UsvitError(
                f"objective {objective} masks patches, and the stem {type(embed).__name__} mixes neighbouring patches: "
                f"a masked one would show in others. Use {KNOWN}."
            )
        if subsets:
            _check_subsets(network, objective)
        patch, grid = embed.patch_size, embed.grid_size
        if patch[0] != patch[1]:
            raise UsvitError(f"objective {objective} needs square patches, not {patch[0]} x {patch[1]}. Use {KNOWN}.")
        return cls(patch[0], (grid[0], grid[1]), network.embed_dim, network.num_prefix_tokens)

    @property
    def count(self) -> int:
        """N."""
        return self.grid[0] * self.grid[1]

    def embed(self, network: Any, images: Tensor) -> Tensor:
        """The stem: (B, 3, S, S) normalised images -> (B, N, D), before positions are added."""
        patches: Tensor = network.patch_embed(images)
        return patches

    def encode(self, network: Any, patches: Tensor, visible: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Positions, layers, last layer normalisation.

        Args:
            network: the one (or a copy of the one) whose facts these are.
            patches: (B, N, D), of ``embed``; some may have been replaced.
            visible: (B, V) int64, the patches that go on, others are dropped; None: all, in their order.

        Returns:
            (B, P, D) prefix tokens (P may be 0), and (B, V or N, D) patch tokens, in the order of ``visible``.
        """
        x: Tensor = network._pos_embed(patches)
        prefix, patches = x[:, : self.n_prefix], x[:, self.n_prefix :]
        if visible is not None:
            patches = torch.take_along_dim(patches, visible[..., None], dim=1)
        x = network.norm_pre(torch.cat([prefix, patches], dim=1))
        x = run_blocks(network, x)
        x = _last_norm(network)(x)
        return x[:, : self.n_prefix], x[:, self.n_prefix :]


def freeze_head(network: nn.Module) -> None:
    """Let nothing after the last layer normalisation train: masked prediction does not use it.

    Parameters that get no gradient would stop processes that wait for one another's.
    """
    named: dict[str, nn.Module] = dict(network.named_children())
    unused = ["head", "head_dist", "hidden", "attn_pool"]
    if not isinstance(named["norm"], nn.Identity):
        unused.append("fc_norm")
    for name in unused:
        if name in named:
            named[name].requires_grad_(False)


def run_blocks(network: Any, x: Tensor) -> Tensor:
    """The layers, recomputed in the backward pass where the network is set to checkpoint them."""
    if not (network.grad_checkpointing and torch.is_grad_enabled()):
        return network.blocks(x)
    from timm.models import checkpoint_seq

    return checkpoint_seq(network.blocks, x)


def _last_norm(network: Any) -> nn.Module:
    """Where a head pools before it normalises, timm keeps the only normalisation as the head's."""
    norm: nn.Module = network.norm if not isinstance(network.norm, nn.Identity) else network.fc_norm
    return norm


def _check_subsets(network: VisionTransformer, objective: str) -> None:
    """Refuse what would silently give a dropped token's place to another."""
    if isinstance(network, ViT) and network.shape.position_at != "stem":
        raise UsvitError(
            f"objective {objective} drops masked tokens, and positions at every layer need them all: "
            "set model.vit.position_at to stem."
        )
    for module in network.blocks.modules():
        if isinstance(module, RelativeAttention):
            raise UsvitError(
                f"objective {objective} drops masked tokens, and relative positions need them all: set "
                "model.vit.position to sincos_2d or learned."
            )
        if isinstance(module, AxialAttention):
            raise UsvitError(
                f"objective {objective} drops masked tokens, and axial attention needs whole rows: set "
                "model.vit.attention to global."
            )
