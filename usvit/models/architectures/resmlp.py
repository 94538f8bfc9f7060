"""ResMLP with the parts that the thesis compares (Touvron 2022, thesis, chapter 4, Table 4.3).

    D = X + Aff(mix(Aff(X)))                                    (eq. 4.2; mix is one linear map over the patches)
    Y = D + Aff(C GELU(B Aff(D)))                               (eq. 4.3)

With the default parts this is timm's ``MlpMixer(ResBlock, Affine)``, with the same names of weights.
"""

from functools import partial
from typing import Any, Literal, get_args

import torch
from timm.layers import DropPath, LayerNorm, LayerScale, Mlp, to_2tuple, trunc_normal_
from timm.models import build_model_with_cfg, checkpoint_seq, generate_default_cfgs, register_model
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
from timm.models.mlp_mixer import checkpoint_filter_fn as filter_mixer
from torch import Tensor, nn

from usvit.models.architectures.cfg import untrained
from usvit.models.architectures.init import start_weights

Mixing = Literal["linear", "none", "mlp", "conv", "dwconv", "sepconv"]
Norm = Literal["aff", "ln"]
Pool = Literal["avg", "class_mlp"]

NORMS: dict[str, type[nn.Module]] = {"aff": Affine, "ln": LayerNorm}


class _GridConv(nn.Sequential):
    """Convolutions on the grid of patches, for channels in raster order: (B, D, H * W) -> (B, D, H * W)."""

    def __init__(self, grid: tuple[int, int], *layers: nn.Module):
        super().__init__(*layers)
        self.grid = grid

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unflatten(2, self.grid)).flatten(2)


def _make_mixing(mixing: Mixing, grid: tuple[int, int], width: int) -> nn.Module:
    """Build the communication across patches, (B, D, N) -> (B, D, N), other than ``linear`` and ``none``.

    The parameters of Table 4.3 prove that the MLP's hidden width is 4 N ("the same MLP structure as for patch
    processing"). The table does not state the following, which was chosen here: convolutions are padded with zeros and
    have biases, and there is no activation between the depth-wise and the point-wise convolution.

    Args:
        mixing: ``mlp``, ``conv`` (3 x 3), ``dwconv`` (depth-wise) or ``sepconv`` (depth-wise, then 1 x 1).
        grid: Numbers of patches H, W; N = H W.
        width: Number of channels D.
    """
    n_patches = grid[0] * grid[1]
    if mixing == "mlp":
        return Mlp(n_patches, 4 * n_patches)
    groups = 1 if mixing == "conv" else width
    layers = [nn.Conv2d(width, width, 3, padding=1, groups=groups)]
    return _GridConv(grid, *layers, *([nn.Conv2d(width, width, 1)] if mixing == "sepconv" else []))


class _MixingBlock(nn.Module):
    """Layer of a ResMLP with another communication across patches, (B, N, D) -> (B, N, D).

    With ``none`` the first sublayer is left out ("If we remove the linear interaction layer ... a bag-of-patches
    approach").
    """

    def __init__(
        self,
        width: int,
        n_patches: int,
        mlp_ratio: float = 4,
        *,
        grid: tuple[int, int],
        mixing: Mixing,
        norm_layer: type[nn.Module],
        layer_scale: float,
        drop: float = 0.0,
        drop_path: float = 0.0,
        **_: Any,
    ):
        super().__init__()
        self.mixing = mixing
        if mixing != "none":
            self.norm1 = norm_layer(width)
            self.mix = _make_mixing(mixing, grid, width)
            self.ls1 = nn.Parameter(torch.full((width,), layer_scale))
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.norm2 = norm_layer(width)
        self.mlp_channels = Mlp(width, int(width * mlp_ratio), drop=drop)
        self.ls2 = nn.Parameter(torch.full((width,), layer_scale))

    def forward(self, x: Tensor) -> Tensor:
        if self.mixing != "none":
            x = x + self.drop_path(self.ls1 * self.mix(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop_path(self.ls2 * self.mlp_channels(self.norm2(x)))


class _ClassMLPLayer(nn.Module):
    """Layer of class-MLP: the class token c (B, 1, D) collects from the frozen patches x (B, N, D).

        c'  = c  + l_1 * a [Aff(c); Aff(x)],     a: one linear map of N + 1 tokens to one
        c'' = c' + l_2 * FFN(Aff'(c'))

    The parameters of Table 4.3 (17.7 million, 2.4 more than without) prove that there is an FFN of ratio 4 and no
    projection of D to D channels. That the class token is one of the tokens that ``a`` reads is chosen here, as in
    CaiT.
    """

    def __init__(self, width: int, n_patches: int, norm_layer: type[nn.Module], layer_scale: float):
        super().__init__()
        self.norm1 = norm_layer(width)
        self.linear_tokens = nn.Linear(n_patches + 1, 1)
        self.ls1 = LayerScale(width, layer_scale)
        self.norm2 = norm_layer(width)
        self.mlp_channels = Mlp(width, 4 * width)
        self.ls2 = LayerScale(width, layer_scale)
        start_weights(self)

    def forward(self, token: Tensor, patches: Tensor) -> Tensor:
        normed = self.norm1(torch.cat([token, patches], dim=1))
        token = token + self.ls1(self.linear_tokens(normed.transpose(1, 2)).transpose(1, 2))
        return token + self.ls2(self.mlp_channels(self.norm2(token)))


class ResMLP(MlpMixer):
    """ResMLP from images (B, C, S, S) to logits (B, K); its features are (B, N, D).

    Args:
        width: Number of channels D of each patch.
        depth: Number of layers; each is one communication across patches and one MLP (4 D) over channels.
        patch: Side of a patch in pixels; the image side must be a multiple of it.
        mixing: Communication across patches: one ``linear`` map, ``none``, an ``mlp``, or a convolution of 3 x 3
            patches, full (``conv``), depth-wise (``dwconv``) or depth-separable (``sepconv``).
        norm: ``aff``, or ``ln``: layer normalisation where ``Aff`` is a pre-normalisation, and at the end. The
            post-normalisation stays, which "is similar to LayerScale".
        pool: ``avg``, or ``class_mlp``: two layers that update a class token (``_ClassMLPLayer``).
        layer_scale: Initial value of the post-normalisation.
        img_size: Side of the image S, or (height, width), in pixels.
        options: Options of ``timm.models.mlp_mixer.MlpMixer``: num_classes, drop_path_rate, in_chans, ...

    Raises:
        ValueError: If ``mixing``, ``norm`` or ``pool`` is unknown.
    """

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        patch: int,
        mixing: Mixing = "linear",
        norm: Norm = "aff",
        pool: Pool = "avg",
        layer_scale: float = 0.1,
        img_size: int | tuple[int, int] = 224,
        **options: Any,
    ):
        for name, value, kind in (("mixing", mixing, Mixing), ("norm", norm, Norm), ("pool", pool, Pool)):
            if value not in get_args(kind):
                raise ValueError(f"{name} is '{value}', but must be one of {', '.join(get_args(kind))}")
        height, width_px = to_2tuple(img_size)
        block: Any = partial(ResBlock, init_values=layer_scale)
        if mixing != "linear":
            grid = (height // patch, width_px // patch)
            block = partial(_MixingBlock, grid=grid, mixing=mixing, layer_scale=layer_scale)
        super().__init__(
            img_size=img_size,  # type: ignore[arg-type]  # timm takes both
            patch_size=patch,
            num_blocks=depth,
            embed_dim=width,
            mlp_ratio=4,
            block_layer=block,
            norm_layer=NORMS[norm],
            **options,
        )
        self.class_layers: nn.ModuleList | None = None
        if pool == "class_mlp":
            self.cls_token = nn.Parameter(trunc_normal_(torch.empty(1, 1, width), std=0.02))
            n_patches = self.stem.num_patches
            self.class_layers = nn.ModuleList(
                _ClassMLPLayer(width, n_patches, NORMS[norm], layer_scale) for _ in range(2)
            )

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images to patches (B, N, D): normalised, or with class-MLP (B, 1 + N, D), the class token first."""
        if self.class_layers is None:
            return super().forward_features(x)
        x = self.stem(x)
        x = checkpoint_seq(self.blocks, x) if self.grad_checkpointing else self.blocks(x)
        token = self.cls_token.expand(len(x), -1, -1)
        for layer in self.class_layers:
            token = layer(token, x)
        return self.norm(torch.cat([token, x], dim=1))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map features to logits (B, K); with ``pre_logits``, to the classifier's input (B, D)."""
        if self.class_layers is not None:
            x = x[:, :1]
        return super().forward_head(x, pre_logits)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier."""
        if self.class_layers is not None and global_pool not in (None, ""):
            raise ValueError(f"this ResMLP pools by class-MLP and cannot use '{global_pool}' pooling")
        super().reset_classifier(num_classes, global_pool)

    def no_weight_decay(self) -> set[str]:
        return set() if self.class_layers is None else {"cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, object]:
        """Return timm's groups for layer-wise rates; the layers of class-MLP join the last norm."""
        last = (r"^norm|^class_layers", (99999,))
        return {"stem": r"^stem|^cls_token", "blocks": [(r"^blocks\.(\d+)", None), last]}


default_cfgs = generate_default_cfgs({"usvit_resmlp.untrained": untrained("stem.proj")})


@register_model
def usvit_resmlp(pretrained: bool = False, **options: Any) -> ResMLP:
    """Build a ResMLP, by default S12; ``options`` are those of ``ResMLP``."""
    return build_model_with_cfg(
        ResMLP,
        "usvit_resmlp",
        pretrained,
        pretrained_filter_fn=filter_mixer,
        feature_cfg={"out_indices": options.pop("out_indices", 3), "feature_cls": "getter"},
        **({"width": 384, "depth": 12, "patch": 16} | options),
    )
