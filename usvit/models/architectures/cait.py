"""CaiT with a distillation token (Touvron 2022, thesis, section 3.6.3, Table 3.14).

The distillation token is inserted "at the same layer as the class token, i.e., on input of the class-attention stage".
The thesis does not state the following, which was chosen here after DeiT's (section 3.3): both tokens ask in the same
layers of class attention and are keys of both; each has a head of its own, and the answer is the mean of the two.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.layers import trunc_normal_
from timm.models import build_model_with_cfg, checkpoint_seq, generate_default_cfgs, register_model
from timm.models.cait import Cait, checkpoint_filter_fn
from torch import Tensor, nn

from usvit.models.architectures.cfg import untrained
from usvit.models.architectures.class_attention import ClassAttention
from usvit.models.architectures.init import start_weights


class _DistilledCait(Cait):
    """CaiT from images (B, C, S, S) to logits (B, K), or to two (B, K) in training if ``set_distilled_training``.

    Its features are (B, 2 + N, D): class token, distillation token, patches. timm's ``VisionTransformerDistilled`` has
    the same names for the second token and head.

    Args:
        width: Number of channels D, a multiple of 48, the width of a head.
        depth: Number of layers of self-attention; two of class attention follow.
        layer_scale: Initial value of LayerScale.
        options: Options of timm's ``Cait``: num_classes, img_size, drop_path_rate, in_chans, ...

    Raises:
        ValueError: If the width is not a multiple of 48.
    """

    def __init__(self, *, width: int, depth: int, layer_scale: float, **options: Any):
        if width % 48:
            raise ValueError(f"the width {width} is not a multiple of 48, the width of CaiT's heads")
        super().__init__(
            embed_dim=width,
            depth=depth,
            num_heads=width // 48,
            init_values=layer_scale,
            attn_block_token_only=partial(ClassAttention, n_queries=2),  # type: ignore[arg-type]
            **options,
        )
        self.num_prefix_tokens = 2
        self.dist_token = nn.Parameter(trunc_normal_(torch.empty(1, 1, width), std=0.02))
        self.distilled_training = False
        self.head_dist = self._new_head()

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.pos_drop(self.patch_embed(x) + self.pos_embed)
        x = checkpoint_seq(self.blocks, x) if self.grad_checkpointing else self.blocks(x)
        return self.norm(self.forward_cls(x))

    def forward_cls(self, x: Tensor) -> Tensor:
        """Apply class attention and put both tokens before the patches: (B, N, D) -> (B, 2 + N, D)."""
        tokens = torch.cat([self.cls_token, self.dist_token], dim=1).expand(len(x), -1, -1)
        for block in self.blocks_token_only:
            tokens = block(x, tokens)
        return torch.cat([tokens, x], dim=1)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Any:
        """Map features to logits (B, K); with ``pre_logits``, to the mean of the two tokens, (B, D)."""
        token, distilled = self.head_drop(x[:, 0]), self.head_drop(x[:, 1])
        if pre_logits:
            return (token + distilled) / 2
        answers = self.head(token), self.head_dist(distilled)
        return answers if self.distilled_training and self.training else (answers[0] + answers[1]) / 2

    def set_distilled_training(self, enable: bool = True) -> None:
        """Return the answers of both heads in training mode, instead of their mean."""
        self.distilled_training = enable

    def get_classifier(self) -> Any:
        return self.head, self.head_dist

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace both classifiers."""
        if global_pool not in (None, "", "token"):
            raise ValueError(f"this network reads its two tokens and cannot use '{global_pool}' pooling")
        super().reset_classifier(num_classes)
        self.head_dist = self._new_head().to(self.cls_token)

    def group_matcher(self, coarse: bool = False) -> Callable[[str], float]:
        """Return timm's groups for layer-wise rates, with the distillation token beside the class token."""
        of_timm = super().group_matcher(coarse)
        return lambda name: of_timm("cls_token" if name == "dist_token" else name)

    def no_weight_decay(self) -> set[str]:
        return {"pos_embed", "cls_token", "dist_token"}

    def _new_head(self) -> nn.Module:
        if not self.num_classes:
            return nn.Identity()
        head = nn.Linear(self.num_features, self.num_classes)
        start_weights(head)
        return head


default_cfgs = generate_default_cfgs(
    {"usvit_cait_distilled.untrained": untrained("patch_embed.proj", ("head", "head_dist"))}
)


@register_model
def usvit_cait_distilled(pretrained: bool = False, **options: Any) -> _DistilledCait:
    """Build a CaiT with a distillation token, by default XXS-24; ``options`` are those of ``_DistilledCait``."""
    return build_model_with_cfg(
        _DistilledCait,
        "usvit_cait_distilled",
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": options.pop("out_indices", 3), "feature_cls": "getter"},
        **({"width": 192, "depth": 24, "layer_scale": 1e-5} | options),
    )
