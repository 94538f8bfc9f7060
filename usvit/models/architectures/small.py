"""The small offline model: a ResNet-18-D at half the width that pools with its own lesion mask.

timm's code, with three 3 x 3 convolutions as stem and average pooling in the shortcuts (ResNet-C and -D of He et al.
2019, Bag of Tricks). A feature pyramid (Lin et al. 2017) over the last three stages predicts the lesion mask. The head
sees the mean over the last map, and the mean weighted with the predicted mask: the whole image and the lesion. The
width was chosen so that the weights in half precision take less than 6 MB.
"""

from typing import Any

import torch
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.models.architectures.cfg import untrained
from usvit.models.mask_decoder import MaskDecoder

STAGES = (2, 3, 4)
"""Stages whose maps the decoder reads, of strides 8, 16 and 32."""
_STRIDE = 32
"""Stride of the last map."""
FLOOR = 1e-3
"""Added to the predicted probability of the lesion, so that an image without one is averaged as a whole."""

default_cfgs = generate_default_cfgs({"usvit_small.untrained": untrained("conv1.0", "fc", fixed_input_size=False)})


class _MaskPooledResNet(ResNet):
    """Network from images (B, C, S, S) to logits (B, K). Its features are (B, F, S/32, S/32).

    For each of ``head_stages``, the features are the map of the stage and the same map weighted with the predicted
    mask, so that the mean over positions is the mean over the image beside the mean over the lesion. The same layers
    see the image at each size of ``scales``, and the head sees the features of all.

    Args:
        num_classes: Number of classes K; with 0 there is no classifier.
        scales: Sides of the views as shares of S, in (0, 1], the first of which is 1. Each side is rounded to a
            multiple of 32 pixels.
        head_stages: Stages that the head sees; the last one is 4.
        standardized: Standardise each feature over the training images before the classifier: batch normalisation
            without scale and shift, as in the linear probing of He et al. 2022 (MAE), appendix A.1.
        options: Options of timm's ``ResNet``.
    """

    predicts_mask = True
    """Whether the network has a ``lesion_mask``."""

    def __init__(
        self,
        *,
        num_classes: int = 1000,
        scales: tuple[float, ...] = (1.0,),
        head_stages: tuple[int, ...] = (4,),
        standardized: bool = False,
        **options: Any,
    ):
        super().__init__(num_classes=num_classes, **options)
        info: list[dict[str, Any]] = self.feature_info
        width: dict[int, int] = {stage: info[stage]["num_chs"] for stage in STAGES}
        self.scales, self.head_stages = scales, head_stages
        self.mask_decoder = MaskDecoder(list(width.values()))
        self.num_features = self.head_hidden_size = len(scales) * 2 * sum(width[stage] for stage in head_stages)
        self.hidden = nn.BatchNorm1d(self.num_features, affine=False) if standardized else None
        self.reset_classifier(num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        """Map (B, C, S, S) to (B, F, S/32, S/32)."""
        return self.features_and_mask(x)[0]

    def forward_with_mask(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) and the logits of the lesion mask, (B, S/8, S/8)."""
        features, mask = self.features_and_mask(x)
        return self.forward_head(features), mask

    def lesion_mask(self, x: Tensor) -> Tensor:
        """Return the logits of the lesion mask of images (B, 3, S, S), (B, S/8, S/8)."""
        return self._of_one_size(x)[1]

    def features_and_mask(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of ``forward_features`` and the logits of the lesion mask, (B, S/8, S/8)."""
        features, mask = self._of_one_size(x)
        parts = [features]
        for scale in self.scales[1:]:
            size = [max(_STRIDE, round(side * scale / _STRIDE) * _STRIDE) for side in x.shape[-2:]]
            view, _ = self._of_one_size(F.interpolate(x, size=size, mode="bilinear", align_corners=False))
            spread = F.interpolate(view, size=features.shape[-2:], mode="nearest")
            # Positions may be repeated unequally; the mean has to be that of the view.
            parts.append(spread + (view.mean((2, 3), keepdim=True) - spread.mean((2, 3), keepdim=True)))
        return (torch.cat(parts, dim=1) if len(parts) > 1 else features), mask

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map the features, (B, F, S/32, S/32), to logits (B, K), or to the classifier's input (B, F)."""
        x = self.global_pool(x)
        if self.hidden is not None:
            x = self.hidden(x)
        x = F.dropout(x, p=self.drop_rate, training=self.training)
        return x if pre_logits else self.fc(x)

    def _of_one_size(self, x: Tensor) -> tuple[Tensor, Tensor]:
        _, maps = super().forward_intermediates(x, indices=list(STAGES))
        mask = self.mask_decoder(maps)
        grid = (maps[-1].shape[-2], maps[-1].shape[-1])
        parts = []
        for stage in self.head_stages:
            seen = maps[STAGES.index(stage)]
            parts += [F.adaptive_avg_pool2d(one, grid) for one in (seen, lesion_weighted(seen, mask))]
        return torch.cat(parts, dim=1), mask

    def forward_intermediates(self, x: Tensor, *arguments: Any, **options: Any) -> Any:
        """Return the features of ``forward_features`` and the maps of the stages; timm documents the arguments."""
        found = super().forward_intermediates(x, *arguments, **options)
        if not isinstance(found, tuple):
            return found
        return self.forward_features(x), found[1]


def lesion_weighted(maps: Tensor, mask: Tensor) -> Tensor:
    """Weight maps (B, C, h, w) so that their mean is that over the lesion, given the logits of its mask, (B, H, W)."""
    weight = F.adaptive_avg_pool2d(mask.float().sigmoid()[:, None], (maps.shape[-2], maps.shape[-1])) + FLOOR
    return maps * (weight / weight.mean((2, 3), keepdim=True)).to(maps.dtype)


@register_model
def usvit_small(pretrained: bool = False, **options: Any) -> _MaskPooledResNet:
    """Build the small offline model; ``options`` are those of ``_MaskPooledResNet``."""
    shape: dict[str, Any] = {
        "block": BasicBlock,
        "layers": (2, 2, 2, 2),
        "channels": (32, 64, 128, 256),
        "stem_type": "deep",
        "stem_width": 16,
        "avg_down": True,
    }
    network: _MaskPooledResNet = build_model_with_cfg(_MaskPooledResNet, "usvit_small", pretrained, **(shape | options))
    return network
