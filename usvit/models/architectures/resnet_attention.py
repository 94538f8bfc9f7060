"""ResNet-50 with PatchConvNet's pooling in the place of the mean (thesis, section 5.3, "Attention-based pooling").

The query attends to the last stage's 7 x 7 patches of 2,048 channels: 4.1 GFLOPs become 4.6, and 79.8 % become 80.1 %
on ImageNet. Everything before the pooling is timm's ResNet-50, with its names of weights.
"""

from typing import Any

from timm.layers import LayerNorm
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import Bottleneck, ResNet
from torch import Tensor, nn

from usvit.models.architectures.attention_pool import AttentionPool, Queries, make_head, spread_query
from usvit.models.architectures.cfg import untrained


class ResNetAttention(ResNet):
    """(B, C, S, S) images to (B, K) logits; features are (B, 2048, S/32, S/32).

    Args:
        queries: ``one``, or one for each ``class``.
        pool_heads: heads of the pooling.
        layer_scale: first value in the pooling, which is a single block, so it need not be small.
        num_classes: K; 0: none, the output is (B, D), or (B, 1, D) with ``class``.
        img_size: taken and not needed.
        options: of timm's ``ResNet``; stochastic depth is its own linear rule, and the pooling has none.

    Raises:
        ValueError: no such queries, or heads that do not divide the width.
    """

    def __init__(
        self,
        *,
        queries: Queries = "one",
        pool_heads: int = 1,
        layer_scale: float = 0.1,
        num_classes: int = 1000,
        img_size: int | tuple[int, int] | None = None,
        **options: Any,
    ):
        super().__init__(num_classes=num_classes, **options)
        self.queries = queries
        n_queries = num_classes or 1 if queries == "class" else 1
        self.attn_pool = AttentionPool(self.num_features, n_queries, heads=pool_heads, layer_scale=layer_scale)
        self.norm = LayerNorm(self.num_features)
        self.head_drop = nn.Dropout(self.drop_rate)
        self.global_pool = nn.Identity()
        self.fc = make_head(self.num_features, num_classes, queries)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B, D, H, W) to logits (B, K); with ``pre_logits`` to what the classifier reads, (B, D) or (B, K, D)."""
        pooled = self.attn_pool(x.flatten(2).transpose(1, 2))
        x = self.head_drop(self.norm(pooled if self.queries == "class" else pooled[:, 0]))
        return x if pre_logits else self.fc(x)

    def attention_maps(self, x: Tensor) -> Tensor:
        """Where the pooling looks: (B, M, H, W), each map sums to 1; M heads, or K classes with a query for each."""
        features = self.forward_features(x)
        return self.attn_pool.maps(features.flatten(2).transpose(1, 2)).unflatten(-1, features.shape[-2:])

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new classifier; with a query for each class these begin as the mean of the old queries."""
        if global_pool not in (None, "", "attention"):
            raise ValueError(f"this network pools by attention, and cannot pool by '{global_pool}'")
        self.num_classes = num_classes
        self.fc = make_head(self.num_features, num_classes, self.queries).to(self.norm.weight)
        if self.queries == "class":
            self.attn_pool.resize(num_classes or 1)

    def no_weight_decay(self) -> set[str]:
        return {"attn_pool.queries"}


default_cfgs = generate_default_cfgs(
    {"usvit_resnet50_attn.untrained": untrained("conv1", "fc", fixed_input_size=False)}
)


@register_model
def usvit_resnet50_attn(pretrained: bool = False, **options: Any) -> ResNetAttention:
    """ResNet-50 with attention pooling; ``options``: of ``ResNetAttention``."""
    fifty: dict[str, Any] = {"block": Bottleneck, "layers": (3, 4, 6, 3)}
    return build_model_with_cfg(
        ResNetAttention,
        "usvit_resnet50_attn",
        pretrained,
        pretrained_filter_fn=spread_query,
        feature_cfg={"out_indices": (0, 1, 2, 3, 4)},
        **(fifty | options),
    )
