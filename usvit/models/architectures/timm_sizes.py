"""timm's own classes at sizes for which timm has no entry point: BiT of any depth and width.

The code of these networks is entirely timm's, so a timm checkpoint fits any network of the same size.
"""

from functools import partial
from typing import Any

from timm.layers import StdConv2d
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnetv2 import ResNetV2

from usvit.models.architectures.cfg import untrained

default_cfgs = generate_default_cfgs({"usvit_bit.untrained": untrained("stem.conv", "head.fc", fixed_input_size=False)})


@register_model
def usvit_bit(
    pretrained: bool = False, *, layers: tuple[int, ...] = (3, 4, 6, 3), factor: int = 1, **kwargs: Any
) -> ResNetV2:
    """Build a ResNet (BiT) with group normalisation and standardised convolutions (Dosovitskiy et al. 2021, sec. 4.1).

    Args:
        pretrained: Always False; the released sizes are timm's ``resnetv2_..._bit``.
        layers: Number of bottleneck blocks in each of the four stages.
        factor: Factor of the width of every layer.
        **kwargs: Options of ``timm.models.resnetv2.ResNetV2``: num_classes, drop_path_rate, in_chans, ...
    """
    return build_model_with_cfg(
        ResNetV2,
        "usvit_bit",
        pretrained,
        feature_cfg={"flatten_sequential": True},
        stem_type="fixed",
        conv_layer=partial(StdConv2d, eps=1e-8),
        layers=tuple(layers),
        width_factor=factor,
        **kwargs,
    )
