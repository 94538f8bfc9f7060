"""The house model: a ResNet-18-D at half the width that looks at its own lesion mask, small enough to ship with usvit.

timm's code, with three 3 x 3 convolutions as stem and average pooling in the shortcuts (ResNet-C and -D of He et al.
2019, Bag of Tricks). A feature pyramid (Lin et al. 2017) over the last three stages predicts the lesion mask. The head
sees the mean over the last map, and the mean weighted with the predicted mask: the whole image and the lesion. The
width was chosen so that the weights in half precision take less than 6 MB.
"""

from typing import Any

import torch
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor
from torch.nn import functional as F

from usvit.models.architectures.cfg import untrained
from usvit.models.mask_decoder import MaskDecoder

STAGES = (2, 3, 4)
"""Stages whose maps the decoder reads, of strides 8, 16 and 32."""
FLOOR = 1e-3
"""Added to the predicted probability of the lesion, so that an image without one is averaged as a whole."""

default_cfgs = generate_default_cfgs({"usvit_small.untrained": untrained("conv1.0", "fc", fixed_input_size=False)})


class MaskPooledResNet(ResNet):
    """Network from images (B, C, S, S) to logits (B, K). Its features are (B, F, S/32, S/32).

    For each of ``head_stages``, the features are the map of the stage and the same map weighted with the predicted
    mask, so that the mean over positions is the mean over the image beside the mean over the lesion. With ``halvings``,
    the same layers see the image at half its size, too, and the head sees the features of both.

    Args:
        num_classes: Number of classes K; with 0 there is no classifier.
        halvings: Number of further views of the image, each of half the size of the one before.
        head_stages: Stages that the head sees; the last one is 4.
        options: Options of timm's ``ResNet``.
    """

    def __init__(
        self, *, num_classes: int = 1000, halvings: int = 0, head_stages: tuple[int, ...] = (4,), **options: Any
    ):
        super().__init__(num_classes=num_classes, **options)
        info: list[dict[str, Any]] = self.feature_info
        width: dict[int, int] = {stage: info[stage]["num_chs"] for stage in STAGES}
        self.halvings, self.head_stages = halvings, head_stages
        self.mask_decoder = MaskDecoder(list(width.values()))
        self.num_features = self.head_hidden_size = (halvings + 1) * 2 * sum(width[stage] for stage in head_stages)
        self.reset_classifier(num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        """Map (B, C, S, S) to (B, F, S/32, S/32)."""
        return self.features_and_mask(x)[0]

    def forward_with_mask(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) and the logits of the lesion mask, (B, S/8, S/8)."""
        features, mask = self.features_and_mask(x)
        return self.forward_head(features), mask

    def features_and_mask(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of ``forward_features`` and the logits of the lesion mask, (B, S/8, S/8)."""
        features, mask = self._of_one_size(x)
        parts = [features]
        for _ in range(self.halvings):
            x = F.avg_pool2d(x, 2)
            # Each position is repeated, which keeps the mean.
            parts.append(F.interpolate(self._of_one_size(x)[0], size=features.shape[-2:], mode="nearest"))
        return (torch.cat(parts, dim=1) if len(parts) > 1 else features), mask

    def _of_one_size(self, x: Tensor) -> tuple[Tensor, Tensor]:
        _, maps = super().forward_intermediates(x, indices=list(STAGES))
        mask = self.mask_decoder(maps)
        grid = (maps[-1].shape[-2], maps[-1].shape[-1])
        weight = F.adaptive_avg_pool2d(mask.float().sigmoid()[:, None], grid) + FLOOR
        weight = (weight / weight.mean((2, 3), keepdim=True)).to(maps[-1].dtype)
        parts = []
        for stage in self.head_stages:
            seen = maps[STAGES.index(stage)]
            seen = seen if tuple(seen.shape[-2:]) == grid else F.adaptive_avg_pool2d(seen, grid)
            parts += [seen, seen * weight]
        return torch.cat(parts, dim=1), mask

    def forward_intermediates(self, x: Tensor, *arguments: Any, **options: Any) -> Any:
        """Return the features of ``forward_features`` and the maps of the stages; timm documents the arguments."""
        found = super().forward_intermediates(x, *arguments, **options)
        if not isinstance(found, tuple):
            return found
        return self.forward_features(x), found[1]


@register_model
def usvit_small(pretrained: bool = False, **options: Any) -> MaskPooledResNet:
    """Build the house model; ``options`` are those of ``MaskPooledResNet``."""
    shape: dict[str, Any] = {
        "block": BasicBlock,
        "layers": (2, 2, 2, 2),
        "channels": (32, 64, 128, 256),
        "stem_type": "deep",
        "stem_width": 16,
        "avg_down": True,
    }
    network: MaskPooledResNet = build_model_with_cfg(MaskPooledResNet, "usvit_small", pretrained, **(shape | options))
    return network
