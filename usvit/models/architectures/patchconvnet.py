"""PatchConvNet: convolutions on patches at a constant resolution, then attention pooling (thesis, chapter 5).

    stem    four 3 x 3 convolutions of stride 2: (B, 3, S, S) -> (B, D, S/16, S/16); or one linear projection
    trunk   N times  x <- x + l * conv1x1(SE(GELU(dw3x3(GELU(conv1x1(norm(x)))))))
    pooling a query attends to the patches (``attention_pool.py``)
    logits  W LN(c)

There are no position embeddings, so images may have any size. The text says "3 x 3 convolution"; its parameter counts
prove that the convolution is depthwise and that the ratio of squeeze-and-excitation is 1/4 (digest of the thesis,
section 5).
"""

from collections.abc import Sequence
from typing import Any, Literal

from timm.layers import (
    DropPath,
    LayerNorm,
    LayerNorm2d,
    LayerScale2d,
    PatchEmbed,
    SqueezeExcite,
)
from timm.models import build_model_with_cfg, checkpoint_seq, generate_default_cfgs, register_model
from torch import Tensor, nn

from usvit.models.architectures.attention_pool import AttentionPool, Queries, make_head, spread_query
from usvit.models.architectures.cfg import untrained
from usvit.models.architectures.init import start_weights
from usvit.models.architectures.stems import conv_stem

NORMS: dict[str, type[nn.Module]] = {"ln": LayerNorm2d, "bn": nn.BatchNorm2d}


class _ConvBlock(nn.Module):
    """Block of the trunk: (B, D, H, W) -> (B, D, H, W)."""

    def __init__(self, width: int, norm: type[nn.Module], layer_scale: float, drop_path: float):
        super().__init__()
        self.norm = norm(width)
        self.conv1 = nn.Conv2d(width, width, 1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.act = nn.GELU()
        self.se = SqueezeExcite(width, rd_ratio=0.25, rd_divisor=1)
        self.conv3 = nn.Conv2d(width, width, 1)
        self.ls = LayerScale2d(width, layer_scale)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.act(self.conv2(self.act(self.conv1(self.norm(x)))))
        return x + self.drop_path(self.ls(self.conv3(self.se(mixed))))


class PatchConvNet(nn.Module):
    """Network from images (B, C, S, S) to logits (B, K); its features are (B, D, S/16, S/16).

    Args:
        width: Number of channels D, a multiple of 8: 384 (S), 768 (B), 1024 (L).
        depth: Number of blocks N of the trunk; it is the number in the name.
        queries: ``one`` query, or one per ``class``, which gives one map per class and is meant for fine-tuning.
        norm: Normalisation of the trunk, ``ln`` or ``bn`` (``bn`` is better by 0.1 to 0.7 points with large batches,
            Table 5.8).
        pool: ``attention``, or ``avg``, the ablation of Table 5.7.
        pool_heads: Number of attention heads of the pooling; 1 in the thesis, several in its ablation (Table 5.7).
        stem: ``conv``, or ``linear``: one projection of each patch of 16 x 16 pixels, as in ViT (Table 5.7).
        layer_scale: Initial value of LayerScale. The thesis does not state it; the public code has 1e-4 for S60 and
            1e-6 for the larger networks.
        img_size: Ignored; accepted for timm's interface. Any size works: the image is padded to multiples of 16. With
            the linear stem, a run needs a multiple of 16.
        in_chans: Number of channels C.
        num_classes: Number of classes K. With 0 there is no classifier, and the output is (B, D), or (B, 1, D) if
            ``queries`` is ``class``.
        drop_path_rate: Rate of stochastic depth in [0, 1), the same in all blocks (section 5.2.3).
        drop_rate: Rate of dropout before the classifier.

    Raises:
        ValueError: If ``norm``, ``pool``, ``stem`` or ``queries`` is unknown, or the width is not allowed.
    """

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        queries: Queries = "one",
        norm: Literal["ln", "bn"] = "ln",
        pool: Literal["attention", "avg"] = "attention",
        pool_heads: int = 1,
        stem: Literal["conv", "linear"] = "conv",
        layer_scale: float = 1e-6,
        img_size: int | tuple[int, int] | None = None,
        in_chans: int = 3,
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
        drop_rate: float = 0.0,
    ):
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"norm is '{norm}', but must be one of {', '.join(NORMS)}")
        if pool not in ("attention", "avg"):
            raise ValueError(f"pool is '{pool}', but must be attention or avg")
        if pool == "avg" and queries != "one":
            raise ValueError("a query for each class requires pool to be attention")
        if stem not in ("conv", "linear"):
            raise ValueError(f"stem is '{stem}', but must be conv or linear")
        if depth < 1:
            raise ValueError(f"depth is {depth}, but must be at least 1")
        self.num_features = self.head_hidden_size = self.embed_dim = width
        self.num_classes, self.in_chans, self.queries = num_classes, in_chans, queries
        self.grad_checkpointing = False
        self.patch_embed = conv_stem(in_chans, width) if stem == "conv" else _linear_stem(in_chans, width)
        self.blocks = nn.Sequential(
            *(_ConvBlock(width, NORMS[norm], layer_scale, drop_path_rate) for _ in range(depth))
        )
        self.feature_info = [{"module": f"blocks.{i}", "num_chs": width, "reduction": 16} for i in range(depth)]
        self.attn_pool = (
            AttentionPool(
                width,
                num_classes or 1 if queries == "class" else 1,
                heads=pool_heads,
                layer_scale=layer_scale,
            )
            if pool == "attention"
            else None
        )
        self.norm = LayerNorm(width)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = make_head(width, num_classes, queries)
        start_weights(self.patch_embed)
        start_weights(self.blocks)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        return checkpoint_seq(self.blocks, x) if self.grad_checkpointing else self.blocks(x)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: Literal["NCHW"] = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Return the features of ``forward_features`` and the maps (B, D, S/16, S/16) of blocks; as timm's networks.

        Args:
            x: Images (B, C, S, S).
            indices: Blocks; the last n for an integer, all for None.
            norm: Apply the last normalisation to the maps.
            stop_early: Compute no block after the last of ``indices``.
            output_fmt: Ignored; the maps have channels first.
            intermediates_only: Return the maps alone.
        """
        blocks = range(len(self.blocks))
        if isinstance(indices, Sequence):
            taken = [blocks[one] for one in indices]
        else:
            taken = [*blocks[-indices if indices else None :]]
        x, maps = self.patch_embed(x), []
        for number, block in enumerate(self.blocks[: max(taken) + 1] if stop_early else self.blocks):
            x = checkpoint_seq([block], x) if self.grad_checkpointing else block(x)
            if number in taken:
                maps.append(self.norm(x.movedim(1, -1)).movedim(-1, 1) if norm else x)
        return maps if intermediates_only else (x, maps)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map (B, D, H, W) to logits (B, K); with ``pre_logits``, to the classifier's input, (B, D) or (B, K, D)."""
        patches = x.flatten(2).transpose(1, 2)  # (B, N, D)
        pooled = patches.mean(dim=1, keepdim=True) if self.attn_pool is None else self.attn_pool(patches)
        x = self.head_drop(self.norm(pooled if self.queries == "class" else pooled[:, 0]))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def attention_maps(self, x: Tensor) -> Tensor:
        """Compute the maps of the pooling, (B, M, H, W); each sums to 1. M is the number of heads, or of class queries.

        Raises:
            ValueError: If the network uses average pooling.
        """
        if self.attn_pool is None:
            raise ValueError("average pooling has no attention maps")
        features = self.forward_features(x)
        return self.attn_pool.maps(features.flatten(2).transpose(1, 2)).unflatten(-1, features.shape[-2:])

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier; with one query per class, the new queries start as the mean of the old ones."""
        if global_pool not in (None, "", "attention" if self.attn_pool is not None else "avg"):
            raise ValueError(f"the pooling of a PatchConvNet is built in, and cannot become '{global_pool}'")
        self.num_classes = num_classes
        self.head = make_head(self.num_features, num_classes, self.queries).to(self.norm.weight)
        if self.queries == "class" and self.attn_pool is not None:
            self.attn_pool.resize(num_classes or 1)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        return {"attn_pool.queries"}

    def group_matcher(self, coarse: bool = False) -> dict[str, object]:
        """Return timm's groups for layer-wise rates: the stem, each block, the pooling with the last norm, the head."""
        return {"stem": r"^patch_embed", "blocks": [(r"^blocks\.(\d+)", None), (r"^attn_pool|^norm", (99999,))]}


def _linear_stem(in_chans: int, width: int) -> nn.Module:
    """Build one projection of each patch, (B, C, S, S) -> (B, D, S/16, S/16)."""
    return PatchEmbed(None, 16, in_chans, width, flatten=False, output_fmt="NCHW", dynamic_img_pad=True)


default_cfgs = generate_default_cfgs(
    {"usvit_patchconvnet.untrained": untrained("patch_embed.0", fixed_input_size=False)}
)


@register_model
def usvit_patchconvnet(pretrained: bool = False, **options: Any) -> PatchConvNet:
    """Build a PatchConvNet, by default S60; ``options`` are those of ``PatchConvNet``."""
    return build_model_with_cfg(
        PatchConvNet,
        "usvit_patchconvnet",
        pretrained,
        pretrained_filter_fn=spread_query,
        feature_cfg={"out_indices": (-1,), "feature_cls": "hook"},
        **({"width": 384, "depth": 60} | options),
    )
