"""Stems of several layers that turn patches into tokens (Three things, section 5, Table 7).

A stem is timm's ``PatchEmbed`` with several convolutions instead of one, so it fits wherever ``PatchEmbed`` does:
(B, 3, S, S) -> (B, (S / patch)^2, D).
"""

from itertools import pairwise
from typing import Any

import torch
from timm.layers import LayerNorm2d, PatchEmbed, to_2tuple, trunc_normal_
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from usvit.models.architectures.init import start_weights

_HMLP_PATCHES = (8, 16, 32)
_CONV_PATCHES = (16,)

NORMS: dict[str, type[nn.Module]] = {"bn": nn.BatchNorm2d, "ln": LayerNorm2d}


class Stem(PatchEmbed):
    """Patch embedding of several convolutions, for one fixed patch size."""

    def set_input_size(self, img_size: Any = None, patch_size: Any = None) -> None:
        """Change the image size.

        Raises:
            ValueError: If the patch size changes; unlike a single projection, these kernels cannot be resampled.
        """
        if patch_size is not None and to_2tuple(patch_size) != self.patch_size:
            wanted = to_2tuple(patch_size)[0]
            raise ValueError(f"a stem for patches of {self.patch_size[0]} pixels cannot take patches of {wanted}")
        super().set_input_size(img_size=img_size)


class LinearStem(Stem):
    """One projection of each patch, followed by batch normalisation, GELU or both (Table 7, "Linear", rows 2 to 4).

    Patches do not mix. A ViT-B with this stem has 17.58 GFLOPs, as with the projection alone.

    Args:
        patch_size: Any side of a patch in pixels.
        embed_dim: Number of channels D.
        norm: ``bn``, or None for no normalisation.
        gelu: True for GELU after the projection and its normalisation.
    """

    def __init__(
        self, *, patch_size: int, in_chans: int = 3, embed_dim: int, norm: str | None, gelu: bool, **options: Any
    ):
        super().__init__(patch_size=patch_size, in_chans=in_chans, embed_dim=embed_dim, **options)
        layers: list[nn.Module] = [nn.Conv2d(in_chans, embed_dim, patch_size, patch_size)]
        layers += [NORMS[norm](embed_dim)] if norm else []
        layers += [nn.GELU()] if gelu else []
        self.proj = nn.Sequential(*layers)  # type: ignore[assignment]


class HMLPStem(Stem):
    """Hierarchical MLP (Fig. 5): subpatches of 4 x 4 pixels, merged 2 x 2 until they are patches.

    For patches of 16: linear on 4 x 4 pixels -> D/4, norm, GELU, merge 2 x 2 -> D/4, norm, GELU, merge 2 x 2 -> D,
    norm. Kernel and stride are equal, so patches do not mix, and masking a patch before the stem or after it is the
    same (with layer normalisation, or batch normalisation in evaluation). A ViT-B with this stem has 17.73 GFLOPs
    instead of 17.58. The text mentions 2 x 2 subpatches; these FLOPs prove 4 x 4.

    Args:
        patch_size: 16 pixels; 8 omits the second merging, and 32 repeats it (not in the paper).
        embed_dim: Number of channels D, a multiple of 4.
        norm: Normalisation, ``bn`` or ``ln``.

    Raises:
        ValueError: If the patch size or the width is not allowed.
    """

    def __init__(self, *, patch_size: int, in_chans: int = 3, embed_dim: int, norm: str, **options: Any):
        if patch_size not in _HMLP_PATCHES:
            raise ValueError(f"the hmlp stem makes patches of {_one_of(_HMLP_PATCHES)} pixels, not of {patch_size}")
        if embed_dim % 4:
            raise ValueError(f"the hmlp stem needs a width that is a multiple of 4, not {embed_dim}")
        super().__init__(patch_size=patch_size, in_chans=in_chans, embed_dim=embed_dim, **options)
        steps = [4] + [2] * ((patch_size // 4).bit_length() - 1)  # 8: 4, 2; 16: 4, 2, 2; 32: 4, 2, 2, 2
        widths = [embed_dim // 4] * (len(steps) - 1) + [embed_dim]
        layers: list[nn.Module] = []
        for step, before, after in zip(steps, [in_chans, *widths], widths, strict=False):
            layers += [nn.Conv2d(before, after, step, step), NORMS[norm](after), nn.GELU()]
        self.proj = nn.Sequential(*layers[:-1])  # type: ignore[assignment]  # no GELU after the last


class ConvStem(Stem):
    """Stem of LeViT (Graham et al. 2021): four 3 x 3 convolutions of stride 2, so each patch sees its neighbours.

    The convolutions have D/8, D/4, D/2 and D channels, each followed by a norm, with GELU between them. A ViT-B with
    this stem has 19.07 GFLOPs.

    Args:
        patch_size: 16 pixels.
        embed_dim: Number of channels D, a multiple of 8.
        norm: Normalisation, ``bn`` or ``ln``.

    Raises:
        ValueError: If the patch size or the width is not allowed.
    """

    def __init__(self, *, patch_size: int, in_chans: int = 3, embed_dim: int, norm: str, **options: Any):
        if patch_size not in _CONV_PATCHES:
            raise ValueError(f"the conv stem makes patches of {_one_of(_CONV_PATCHES)} pixels, not of {patch_size}")
        super().__init__(patch_size=patch_size, in_chans=in_chans, embed_dim=embed_dim, **options)
        self.proj = conv_stem(in_chans, embed_dim, norm)  # type: ignore[assignment]


class LocalStem(Stem):
    """Small transformer among the 4 x 4 subpatches of each patch, then a projection of them all (Table 7, "Local").

    "Small transformers have also been considered" is all that the paper says; it cites Transformer in Transformer
    (TNT; Han et al. 2021). The inner width (40), heads (4), subpatches (of 4 x 4 pixels for patches of 16), their 7 x 7
    convolution and the normalisation before and after the projection are those of TNT-B. The number of layers is not
    stated: with 24, a ViT-B has the printed 19.12 GFLOPs. The convolution reaches 2 pixels into neighbouring patches.

    Args:
        patch_size: Side of a patch in pixels, a multiple of 4.
        embed_dim: Number of channels D.
        depth: Number of inner layers.

    Raises:
        ValueError: If the patch size is not a multiple of 4.
    """

    def __init__(self, *, patch_size: int, in_chans: int = 3, embed_dim: int, depth: int = 24, **options: Any):
        if patch_size % 4:
            raise ValueError(f"the local stem makes patches of a multiple of 4 pixels, not of {patch_size}")
        super().__init__(patch_size=patch_size, in_chans=in_chans, embed_dim=embed_dim, **options)
        self.side, width, heads = patch_size // 4, 40, 4
        self.pixels = nn.Conv2d(in_chans, width, 7, stride=4, padding=3)
        self.position = nn.Parameter(trunc_normal_(torch.empty(self.side**2, width), std=0.02))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.proj = nn.Sequential(  # type: ignore[assignment]
            nn.LayerNorm(self.side**2 * width), nn.Linear(self.side**2 * width, embed_dim), nn.LayerNorm(embed_dim)
        )
        start_weights(self.blocks)
        start_weights(self.proj)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, C, H, W) to tokens (B, H W / patch^2, D)."""
        batch, (rows, columns) = len(x), self.grid_size
        x = self.pixels(x).unflatten(2, (rows, self.side)).unflatten(4, (columns, self.side))
        x = x.permute(0, 2, 4, 3, 5, 1).reshape(batch * rows * columns, self.side**2, -1)  # each patch's subpatches
        x = self.blocks(x + self.position)
        return self.proj(x.flatten(1)).view(batch, rows * columns, -1)


def conv_stem(in_chans: int, width: int, norm: str | None = None) -> nn.Sequential:
    """Build four 3 x 3 convolutions of stride 2: (B, C, S, S) -> (B, D, S/16, S/16).

    Args:
        in_chans: Number of channels C.
        width: Number of output channels D, a multiple of 8.
        norm: Normalisation after each convolution; None for no normalisation, as in PatchConvNet (thesis, section
            5.2.1).

    Raises:
        ValueError: If the width is not a multiple of 8.
    """
    if width % 8:
        raise ValueError(f"the conv stem needs a width that is a multiple of 8, not {width}")
    widths = [in_chans, width // 8, width // 4, width // 2, width]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers.append(nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False))
        layers += [NORMS[norm](after)] if norm else []
        layers.append(nn.GELU())
    return nn.Sequential(*layers[:-1])


def _one_of(numbers: tuple[int, ...]) -> str:
    return " or ".join(str(number) for number in numbers)
