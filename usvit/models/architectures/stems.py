"""What makes tokens of patches, other than one projection (Three things, section 5, Table 7).

The stems are timm's ``PatchEmbed`` with several convolutions in the place of its one, so they fit wherever it does:
(B, 3, S, S) in, (B, (S / patch)^2, D) out.
"""

from itertools import pairwise
from typing import Any

from timm.layers import LayerNorm2d, PatchEmbed, to_2tuple
from torch import nn

HMLP_PATCHES = (8, 16, 32)
CONV_PATCHES = (16,)

NORMS: dict[str, type[nn.Module]] = {"bn": nn.BatchNorm2d, "ln": LayerNorm2d}


class Stem(PatchEmbed):
    """A patch embedding of several convolutions, which has one size of patches."""

    def set_input_size(self, img_size: Any = None, patch_size: Any = None) -> None:
        """Take images of another size.

        Raises:
            ValueError: another patch size; unlike one projection's, these kernels cannot be resampled.
        """
        if patch_size is not None and to_2tuple(patch_size) != self.patch_size:
            wanted = to_2tuple(patch_size)[0]
            raise ValueError(f"a stem for patches of {self.patch_size[0]} pixels cannot take patches of {wanted}")
        super().set_input_size(img_size=img_size)


class HMLPStem(Stem):
    """Hierarchical MLP (Fig. 5): subpatches of 4 x 4, merged 2 x 2 until they are patches.

    Patch 16: linear on 4 x 4 pixels -> D/4, norm, GELU, merge 2 x 2 -> D/4, norm, GELU, merge 2 x 2 -> D, norm. Kernel
    and stride are equal, so no patch sees another, and masking a patch before the stem or after it is the same (with
    layer normalisation, or batch normalisation in evaluation). For a ViT-B the network has 17.73 GFLOPs, of 17.58.
    The text speaks of 2 x 2 subpatches; these FLOPs prove 4 x 4.

    Args:
        patch_size: 16; 8 leaves the second merging out, 32 repeats it (not in the paper).
        embed_dim: D, a multiple of 4.
        norm: ``bn`` or ``ln``.

    Raises:
        ValueError: other patches or widths.
    """

    def __init__(self, *, patch_size: int, in_chans: int = 3, embed_dim: int, norm: str, **options: Any):
        if patch_size not in HMLP_PATCHES:
            raise ValueError(f"the hmlp stem makes patches of {_one_of(HMLP_PATCHES)} pixels, not of {patch_size}")
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
    """LeViT's (Graham et al. 2021): four 3 x 3 convolutions of stride 2, so each patch sees its neighbours.

    D/8, D/4, D/2, D channels, each with a norm, GELU between them. For a ViT-B the network has 19.07 GFLOPs.

    Args:
        patch_size: 16.
        embed_dim: D, a multiple of 8.
        norm: ``bn`` or ``ln``.

    Raises:
        ValueError: other patches or widths.
    """

    def __init__(self, *, patch_size: int, in_chans: int = 3, embed_dim: int, norm: str, **options: Any):
        if patch_size not in CONV_PATCHES:
            raise ValueError(f"the conv stem makes patches of {_one_of(CONV_PATCHES)} pixels, not of {patch_size}")
        super().__init__(patch_size=patch_size, in_chans=in_chans, embed_dim=embed_dim, **options)
        self.proj = conv_stem(in_chans, embed_dim, norm)  # type: ignore[assignment]


def conv_stem(in_chans: int, width: int, norm: str | None = None) -> nn.Sequential:
    """Four 3 x 3 convolutions of stride 2: (B, C, S, S) -> (B, D, S/16, S/16).

    Args:
        in_chans: C.
        width: D, a multiple of 8.
        norm: after each convolution; None, as PatchConvNet has it (thesis, section 5.2.1): there is none.

    Raises:
        ValueError: another width.
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
