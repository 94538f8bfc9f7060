"""Images as sequences of patches, and masked prediction with a ViT between its stem and its blocks.

Masked prediction hides patches after the stem: MAE removes tokens, BEiT and the original ViT replace them. The stem
sees every patch, so it should not mix them. A linear stem does not, nor does the hMLP stem ("we can equivalently mask
the patches before or after the patch-processing stage", Three things, section 5). Stems of overlapping convolutions do;
the paper trains them with BEiT all the same (Table 7, column "BeiT+FT"), by masking after the stem.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from timm.layers import PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.models import AxialAttention, ConvStem, HMLPStem, LinearStem, LocalStem, RelativeAttention, ViT
from usvit.upstream.pretraining.task import PretrainingTask

logger = logging.getLogger(__name__)

KNOWN = "vit_ti16, vit_s16, vit_b16 (usvit models list), with model.vit.stem linear, hmlp_bn or hmlp_ln"
_SEPARATE = (PatchEmbed, LinearStem, HMLPStem)
"""Stems that process each patch separately."""
_MIXING = (ConvStem, LocalStem)
"""Stems that let a patch see its neighbours' pixels."""


def patchify(images: Tensor, patch: int) -> Tensor:
    """Cut (B, C, H, W) images into (B, N, patch * patch * C) patches, in raster order as a ViT's tokens.

    The values of a patch are in the order rows, columns, channels (He et al. 2022, public code).

    Raises:
        ValueError: H or W is not a multiple of ``patch``.
    """
    batch, channels, height, width = images.shape
    if height % patch or width % patch:
        raise ValueError(f"images of {height} x {width} are not a multiple of patches of {patch}")
    rows = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return rows.permute(0, 2, 4, 3, 5, 1).reshape(batch, -1, patch * patch * channels)


def unpatchify(patches: Tensor, patch: int, grid: tuple[int, int]) -> Tensor:
    """Invert ``patchify``: (B, N, patch * patch * C) -> (B, C, grid[0] * patch, grid[1] * patch)."""
    rows, columns = grid
    batch, channels = len(patches), patches.shape[-1] // patch**2
    pixels = patches.reshape(batch, rows, columns, patch, patch, channels)
    return pixels.permute(0, 5, 1, 3, 2, 4).reshape(batch, channels, rows * patch, columns * patch)


@dataclass(frozen=True)
class Tokens:
    """Sizes of a ViT's patch tokens, and forward passes through the network's two halves.

    It holds no network, so that a moving average or a wrapped network can be passed in:

        tokens = Tokens.of(network, "beit")                                 # or UsvitError
        patches = tokens.embed(network, images)                             # (B, N, D)
        patches = torch.where(mask[..., None], mask_token, patches)         # BEiT: some replaced
        prefix, patches = tokens.encode(network, patches)                   # (B, P, D), (B, N, D)
        prefix, patches = tokens.encode(network, patches, visible)          # MAE: (B, V) indices -> (B, V, D)
    """

    patch: int
    """Side of a patch in pixels."""
    grid: tuple[int, int]
    """Patches down, across."""
    width: int
    """Width D of a token."""
    n_prefix: int
    """Number P of class, distillation and register tokens before the patches."""

    @classmethod
    def of(cls, network: nn.Module, task: str, *, subsets: bool = False, mixing: bool = False) -> "Tokens":
        """Describe the tokens of a network.

        Args:
            network: any network of the zoo.
            task: value of the config key ``objective``, for error messages.
            subsets: whether ``encode`` will be called with ``visible``, which needs positions that are added at the
                stem.
            mixing: whether a stem that mixes neighbouring patches is allowed; a note is then logged.

        Raises:
            UsvitError: the network is not a plain ViT, its stem mixes patches, or its attention needs all of them.
        """
        if not isinstance(network, VisionTransformer):
            kind = type(network).__name__
            raise UsvitError(f"objective {task} needs a plain ViT, whose tokens it masks, not a {kind}. Use {KNOWN}.")
        embed: Any = network.patch_embed
        if mixing and type(embed) in _MIXING:
            logger.info(
                f"The stem {type(embed).__name__} mixes neighbouring patches, and objective {task} masks after it: "
                "tokens beside a masked patch have seen its border (Three things, section 5)."
            )
        elif type(embed) not in _SEPARATE or network.dynamic_img_size:
            raise UsvitError(
                f"objective {task} masks patches, and the stem {type(embed).__name__} mixes neighbouring patches: "
                f"masked patches would leak into others. Use {KNOWN}."
            )
        if subsets:
            _check_subsets(network, task)
        patch, grid = embed.patch_size, embed.grid_size
        if patch[0] != patch[1]:
            raise UsvitError(f"objective {task} needs square patches, not {patch[0]} x {patch[1]}. Use {KNOWN}.")
        return cls(patch[0], (grid[0], grid[1]), network.embed_dim, network.num_prefix_tokens)

    @property
    def count(self) -> int:
        """Number N of patches."""
        return self.grid[0] * self.grid[1]

    def embed(self, network: Any, images: Tensor) -> Tensor:
        """Apply the stem: (B, 3, S, S) normalized images -> (B, N, D) tokens without positions."""
        patches: Tensor = network.patch_embed(images)
        return patches

    def encode(self, network: Any, patches: Tensor, visible: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Apply positions, layers and the last layer normalization.

        Args:
            network: the network that this object describes, or a copy of it.
            patches: (B, N, D), from ``embed``; some may have been replaced.
            visible: (B, V) int64, indices of the patches to keep. None keeps all, in their order.

        Returns:
            (B, P, D) prefix tokens (P may be 0), and (B, V or N, D) patch tokens, in the order of ``visible``.
        """
        x: Tensor = network._pos_embed(patches)
        prefix, patches = x[:, : self.n_prefix], x[:, self.n_prefix :]
        if visible is not None:
            patches = torch.take_along_dim(patches, visible[..., None], dim=1)
        x = network.norm_pre(torch.cat([prefix, patches], dim=1))
        x = _run_blocks(network, x)
        x = _last_norm(network)(x)
        return x[:, : self.n_prefix], x[:, self.n_prefix :]


class MaskedPredictionNetwork(nn.Module):
    """ViT with additional parts for pre-training, such as a decoder, a classifier or a mask embedding.

    Args:
        network: a plain ViT, which the run saves. Its own head is left as it is, and is not trained.
        tokens: the network's tokens.
    """

    def __init__(self, network: nn.Module, tokens: Tokens):
        super().__init__()
        self.network, self.tokens = network, tokens
        freeze_head(network)


class MaskedPredictionTask(PretrainingTask):
    """A task whose module is a ``MaskedPredictionNetwork``."""

    def network(self, module: nn.Module) -> nn.Module:
        kept: nn.Module = module.network  # type: ignore[assignment]
        return kept


def freeze_head(network: nn.Module) -> None:
    """Freeze everything after the last layer normalization, which masked prediction does not use.

    With several processes, DDP would wait for the gradients of parameters that get none.
    """
    named: dict[str, nn.Module] = dict(network.named_children())
    unused = ["head", "head_dist", "hidden", "attn_pool"]
    if not isinstance(named["norm"], nn.Identity):
        unused.append("fc_norm")
    for name in unused:
        if name in named:
            named[name].requires_grad_(False)


def _run_blocks(network: Any, x: Tensor) -> Tensor:
    """Apply the layers; they are recomputed in the backward pass if the network checkpoints gradients."""
    if not (network.grad_checkpointing and torch.is_grad_enabled()):
        return network.blocks(x)
    from timm.models import checkpoint_seq

    return checkpoint_seq(network.blocks, x)


def _last_norm(network: Any) -> nn.Module:
    """Return the last normalization. If a head pools before it normalizes, timm stores it as ``fc_norm``."""
    norm: nn.Module = network.norm if not isinstance(network.norm, nn.Identity) else network.fc_norm
    return norm


def _check_subsets(network: VisionTransformer, task: str) -> None:
    """Raise if dropping tokens would silently change the positions of others."""
    if isinstance(network, ViT) and network.shape.position_at != "stem":
        raise UsvitError(
            f"objective {task} drops masked tokens, but positions at every layer need all tokens: "
            "set model.vit.position_at to stem."
        )
    for module in network.blocks.modules():
        if isinstance(module, RelativeAttention):
            raise UsvitError(
                f"objective {task} drops masked tokens, but relative positions need all tokens: set "
                "model.vit.position to sincos_2d or learned."
            )
        if isinstance(module, AxialAttention):
            raise UsvitError(
                f"objective {task} drops masked tokens, but axial attention needs whole rows: set "
                "model.vit.attention to global."
            )
