"""``usvit_vit``: the Vision Transformer with all the interchangeable parts of the source papers.

It extends timm's ``VisionTransformer``: with plain options, the state dict, shapes and outputs are the same as timm's.
It adds the parts that timm lacks: stems (``stems.py``), positions (``positions.py``), axial blocks (``axial.py``),
branches that run at once (``parallel.py``), LayerScale's rivals (``residual.py``), talking heads
(``talking_heads.py``), class attention and a late class token (``class_attention.py``), and the hidden layer of the
original head.

    z_0     = [x_class; x_1 E; ...; x_N E] + E_pos            (Dosovitskiy et al. 2021, eq. 1)
    z'_l    = z_(l-1) + MSA(LN(z_(l-1)))                      (eq. 2)
    z_l     = z'_l + MLP(LN(z'_l))                            (eq. 3)
    y       = pool(LN(z_L))                                   (eq. 4)
    logits  = W y  or  W tanh(V y)                            (section 3.1)
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, get_args

import torch
from timm.layers import PatchEmbed, to_2tuple
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import Block, VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from usvit.config import Attention, ClassKeys, Head, Pool, Position, PositionAt, Residual, Stem, ViTShape
from usvit.models.architectures.axial import AxialAttention, AxialBlock, replace_attention
from usvit.models.architectures.cfg import untrained
from usvit.models.architectures.class_attention import ClassBlock, ParallelPatchesBlock, PatchesBlock
from usvit.models.architectures.init import start_weights
from usvit.models.architectures.parallel import ParallelBlock
from usvit.models.architectures.positions import (
    AddPositions,
    Learned,
    Learned2d,
    Positions,
    RelativeAttention,
    SinCos2d,
)
from usvit.models.architectures.residual import OWN_SCALARS, start_value, weigh_branches
from usvit.models.architectures.stems import ConvStem, HMLPStem, LinearStem, LocalStem
from usvit.models.architectures.talking_heads import TalkingHeads

_EmbedLayer = Callable[..., nn.Module]
STEMS: dict[str, _EmbedLayer] = {
    "linear": PatchEmbed,
    "linear_bn": partial(LinearStem, norm="bn", gelu=False),
    "linear_gelu": partial(LinearStem, norm=None, gelu=True),
    "linear_bn_gelu": partial(LinearStem, norm="bn", gelu=True),
    "hmlp_bn": partial(HMLPStem, norm="bn"),
    "hmlp_ln": partial(HMLPStem, norm="ln"),
    "conv_bn": partial(ConvStem, norm="bn"),
    "conv_ln": partial(ConvStem, norm="ln"),
    "local": LocalStem,
}
POSITIONS: dict[str, type[Positions]] = {"learned": Learned, "learned_2d": Learned2d, "sincos_2d": SinCos2d}


class ViT(VisionTransformer):
    """Vision Transformer from images (B, C, S, S) to logits (B, K); its features are (B, 1 + N, D), or (B, N, D).

    Conventions for choices that the papers leave open:

    - There is a class token if and only if the head reads it. Average and attention pooling read the patches after the
      last layer normalisation (eq. 4; big_vision), whose key is always ``norm``.
    - The rate of stochastic depth grows linearly over the layers from 0 to ``drop_path_rate``, as in timm and DeiT. The
      later chapters of the thesis use one rate for all layers; half of timm's rate gives the same mean
      (``regularize.set_drop_path``).
    - A class token that enters at a later layer has its position already, and no layer before changes it. Stochastic
      depth counts the layers of self-attention; class attention has none (as in CaiT's public code).
    - Weights are initialised as in timm: truncated normal (sd 0.02), zero biases. Convolutions of stems are initialised
      as in PyTorch.

    Args:
        width, depth, mlp, heads, patch, branches, stem, pool, head, position, position_at, attention, layer_scale,
            residual, class_position, class_at, class_layers, class_keys, class_layer_scale: See
            ``usvit.config.ViTShape``.
        img_size: Side S, or (height, width), in pixels; a multiple of the patch size. ``set_input_size`` changes it.
        in_chans: Number of channels C.
        num_classes: Number of classes K. With 0 there is no classifier, and the output is (B, D).
        drop_path_rate: Rate of stochastic depth of the last layer, in [0, 1).
        drop_rate: Rate of dropout before the classifier.
        embed_layer: Layer with the interface of timm's ``PatchEmbed`` to use instead of the stem (for hybrids). The
            patch size then refers to its feature map.

    Raises:
        ValueError: If the shape is impossible; the message names the parts that cannot be combined.
    """

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        mlp: int,
        heads: int,
        patch: int,
        branches: int = 1,
        stem: Stem = "linear",
        pool: Pool = "token",
        head: Head = "linear",
        position: Position = "learned",
        position_at: PositionAt = "stem",
        attention: Attention = "global",
        layer_scale: float | None = None,
        residual: Residual = "layer_scale",
        class_position: bool = True,
        class_at: int = 0,
        class_layers: int = 0,
        class_keys: ClassKeys = "all",
        class_layer_scale: bool = True,
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
        drop_rate: float = 0.0,
        embed_layer: _EmbedLayer | None = None,
    ):
        shape = ViTShape(
            width=width, depth=depth, mlp=mlp, heads=heads, patch=patch, branches=branches, stem=stem, pool=pool,
            head=head, position=position, position_at=position_at, attention=attention, layer_scale=layer_scale,
            residual=residual, class_position=class_position, class_at=class_at, class_layers=class_layers,
            class_keys=class_keys, class_layer_scale=class_layer_scale,
        )  # fmt: skip
        _check_shape(shape)
        if embed_layer is None:
            _check_patches(img_size, patch)
        block: Any = Block
        if branches > 1:
            block = partial(ParallelBlock, num_parallel=branches)
        if attention == "axial":
            block = partial(AxialBlock, block_fn=block)
        if class_at or class_layers:
            block = _late_class_token(block, branches, depth if class_layers else class_at)
        plain_position = position == "learned" and position_at == "stem"  # timm's own
        super().__init__(
            img_size=img_size,
            patch_size=patch,
            in_chans=in_chans,
            num_classes=num_classes,
            global_pool=pool,
            embed_dim=width,
            depth=depth,
            num_heads=heads,
            mlp_ratio=(mlp + 0.5) / width,  # timm cuts width * ratio to an integer: mlp, whatever the rounding
            init_values=start_value(shape),
            class_token=pool == "token",
            pos_embed="learn" if plain_position else "none",
            no_embed_class=not class_position,
            fc_norm=False,
            drop_rate=drop_rate,
            drop_path_rate=drop_path_rate,
            block_fn=block,
            embed_layer=embed_layer or STEMS[stem],
        )
        self.shape = shape
        self.hidden = _hidden(width) if head == "hidden" and num_classes else None
        self.pos_embeds = nn.ModuleList()
        grid = self.patch_embed.grid_size
        if position in POSITIONS and not plain_position:
            for _ in range(depth if position_at == "layers" else 1):
                self.pos_embeds.append(
                    POSITIONS[position](grid, width, self.num_prefix_tokens, prefix_position=class_position)
                )
        if position_at != "stem":
            for index, layer in enumerate(self.blocks):
                own = self.pos_embeds[index if position_at == "layers" else 0]
                layer.register_forward_pre_hook(AddPositions(own))
        if position == "relative":
            n_patches = grid[0] * grid[1]
            replace_attention(self.blocks, lambda old: RelativeAttention(width, heads, n_patches))
        if attention == "talking":
            replace_attention(self.blocks, lambda old: TalkingHeads(width, heads))
        weigh_branches(self.blocks, shape)
        for _ in range(class_layers):
            scale = layer_scale if class_layer_scale else None
            self.feature_info.append({**self.feature_info[-1], "module": f"blocks.{len(self.blocks)}"})
            self.blocks.append(ClassBlock(width, heads, mlp, keys=class_keys, layer_scale=scale))
        self._tell_grid()

    def _tell_grid(self) -> None:
        for module in self.blocks.modules():
            if isinstance(module, AxialAttention):
                module.grid = self.patch_embed.grid_size

    def _pos_embed(self, x: Tensor) -> Tensor:
        if self.pos_embed is not None:
            return super()._pos_embed(x)
        if self.cls_token is not None:  # which older timm leaves out where it has no positions
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        if len(self.pos_embeds) and self.shape.position_at == "stem":
            x = x + self.pos_embeds[0]()
        return self.pos_drop(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map tokens (B, P + N, D) to logits (B, K); with ``pre_logits``, to the input of the whole head, (B, D)."""
        x = super().forward_head(x, pre_logits=True)
        if pre_logits:
            return x
        return self.head(x if self.hidden is None else self.hidden(x))

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head by a new one of the same form; a hidden layer gets new weights, too.

        Dosovitskiy et al. pre-train with a hidden head and fine-tune with a linear one (sections 3.1, 3.2). To do so,
        build the network with ``head="linear"``, and omit the hidden layer of the pre-trained file.
        """
        super().reset_classifier(num_classes, global_pool)
        if self.shape.head == "hidden":
            self.hidden = _hidden(self.embed_dim).to(self.norm.weight) if num_classes else None  # type: ignore[arg-type]

    def set_input_size(
        self, img_size: int | tuple[int, int] | None = None, patch_size: int | tuple[int, int] | None = None
    ) -> None:
        """Change the image size or the patch size; positions and the linear stem's kernel are resampled.

        Raises:
            ValueError: If the image size is not a multiple of the patch size, or the stem has a fixed patch size.
        """
        size = self.patch_embed.img_size if img_size is None else to_2tuple(img_size)
        patch = self.patch_embed.patch_size if patch_size is None else to_2tuple(patch_size)
        _check_patches(size, patch[0] * self.patch_embed.feat_ratio() // max(self.patch_embed.patch_size))
        super().set_input_size(img_size=size, patch_size=None if patch_size is None else patch)
        grid = self.patch_embed.grid_size
        for module in self.modules():
            if isinstance(module, Positions):
                module.resize(grid)
            elif isinstance(module, RelativeAttention):
                module.resize(grid[0] * grid[1])
        self._tell_grid()

    def no_weight_decay(self) -> set[str]:
        """Return timm's names (class token, position embeddings), every position table, and the pooling's query."""
        own = {"attn_pool.latent"} if self.attn_pool is not None else set()
        own |= {name for name, _ in self.named_parameters() if "pos_embeds." in name or name.endswith(".relative")}
        return super().no_weight_decay() | own

    def group_matcher(self, coarse: bool = False) -> dict[str, object]:
        """Return timm's groups for layer-wise rates; a layer's positions join its group, shared ones the stem's."""
        stem = r"^cls_token|^pos_embed$|^patch_embed"
        blocks = [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))]
        if self.shape.position_at == "layers":
            blocks.append((r"^pos_embeds\.(\d+)", None))
        else:
            stem += r"|^pos_embeds"
        return {"stem": stem, "blocks": blocks}


def _late_class_token(block: Any, branches: int, class_at: int) -> Callable[..., nn.Module]:
    """Return the constructor of the blocks, of which the first ``class_at`` leave the class token out."""
    early: Any = PatchesBlock if branches == 1 else partial(ParallelPatchesBlock, num_parallel=branches)
    made = itertools.count()
    return lambda **options: (early if next(made) < class_at else block)(**options)


def _check_shape(shape: ViTShape) -> None:
    """Raise ``ValueError`` if the parts of the shape cannot be combined."""
    for name in ("width", "depth", "mlp", "heads", "patch", "branches"):
        if getattr(shape, name) < 1:
            raise ValueError(f"{name} is {getattr(shape, name)}, but must be at least 1")
    kinds = {"stem": Stem, "pool": Pool, "head": Head, "position": Position, "position_at": PositionAt}
    kinds |= {"attention": Attention, "residual": Residual, "class_keys": ClassKeys}
    for name, kind in kinds.items():
        if getattr(shape, name) not in get_args(kind):
            raise ValueError(f"{name} is '{getattr(shape, name)}', but must be one of {', '.join(get_args(kind))}")
    if shape.width % shape.heads:
        raise ValueError(f"the width {shape.width} is not divisible by the {shape.heads} heads")
    if shape.layer_scale is not None and shape.layer_scale < 0:
        raise ValueError(f"layer_scale is {shape.layer_scale}, but must not be negative")
    if shape.layer_scale is not None and shape.residual in OWN_SCALARS:
        raise ValueError(f"residual '{shape.residual}' starts its weights at 1: set layer_scale to none")
    if shape.layer_scale is None and shape.residual in ("scalar", "layer_scale_uniform"):
        raise ValueError(f"residual '{shape.residual}' needs layer_scale, the initial value of its weights")
    if shape.attention == "axial" and shape.pool == "token":
        raise ValueError("axial attention does not support a class token: set pool to avg or map")
    if shape.attention != "global" and shape.position == "relative":
        raise ValueError(f"relative positions cannot be combined with {shape.attention} attention")
    if not 0 <= shape.class_at < shape.depth:
        raise ValueError(f"class_at is {shape.class_at}, but must be at least 0 and below the depth of {shape.depth}")
    if shape.class_layers < 0:
        raise ValueError(f"class_layers is {shape.class_layers}, but must be at least 0")
    if shape.class_at and shape.class_layers:
        raise ValueError(
            "class_layers inserts the class token after the last layer of self-attention: set class_at to 0"
        )
    if (shape.class_at or shape.class_layers) and shape.pool != "token":
        raise ValueError("class_at and class_layers need a class token: set pool to token")
    if (shape.class_at or shape.class_layers) and shape.position_at != "stem":
        raise ValueError("class_at and class_layers need positions at the stem alone: set position_at to stem")
    if shape.class_layers and shape.residual != "layer_scale":
        raise ValueError(f"class_layers cannot be combined with residual '{shape.residual}': set it to layer_scale")
    if not shape.class_layers and (shape.class_keys != "all" or not shape.class_layer_scale):
        raise ValueError("class_keys and class_layer_scale belong to class attention: set class_layers, such as 2")
    if shape.position_at != "stem" and shape.position in ("none", "relative"):
        raise ValueError(f"position '{shape.position}' is available only at the stem: set position_at to stem")
    if shape.position_at == "layers" and shape.position == "sincos_2d":
        raise ValueError("sincos_2d positions are the same in every layer: set position_at to shared")


def _check_patches(img_size: int | tuple[int, int], patch: int) -> None:
    for side in to_2tuple(img_size):
        if side % patch or side < patch:
            raise ValueError(f"the image side of {side} pixels is not a multiple of the patch size {patch}")


def _hidden(width: int) -> nn.Sequential:
    """Build the hidden layer of the head (section 3.1, "at pre-training time"): width D, with tanh (appendix D.3)."""
    layers = nn.Sequential(OrderedDict(fc=nn.Linear(width, width), act=nn.Tanh()))
    start_weights(layers)
    return layers


default_cfgs = generate_default_cfgs({"usvit_vit.untrained": untrained("patch_embed.proj")})


@register_model
def usvit_vit(pretrained: bool = False, **options: Any) -> ViT:
    """Build a ViT, by default ViT-B/16; ``options`` are those of ``ViT``."""
    return create_vit("usvit_vit", pretrained, **(asdict(ViTShape(768, 12, 3072, 12, 16)) | options))


def create_vit(architecture: str, pretrained: bool, **options: Any) -> ViT:
    """Build a ``ViT`` with timm's loading of weights and extraction of features."""
    return build_model_with_cfg(
        ViT,
        architecture,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": 3, "feature_cls": "getter"},
        **options,
    )
