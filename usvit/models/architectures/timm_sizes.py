"""timm's own classes at sizes for which timm has no entry point: ResMLP of any depth and patch size, BiT of any depth.

The code of these networks is entirely timm's, so a timm checkpoint fits any network of the same size.
"""

from functools import partial
from typing import Any

from timm.layers import StdConv2d
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
from timm.models.mlp_mixer import checkpoint_filter_fn as filter_mixer
from timm.models.resnetv2 import ResNetV2

from usvit.models.architectures.cfg import untrained

default_cfgs = generate_default_cfgs(
    {
        "usvit_resmlp.untrained": untrained("stem.proj"),
        "usvit_bit.untrained": untrained("stem.conv", "head.fc", fixed_input_size=False),
    }
)


@register_model
def usvit_resmlp(
    pretrained: bool = False,
    *,
    width: int = 384,
    depth: int = 12,
    patch: int = 16,
    layer_scale: float = 0.1,
    **kwargs: Any,
) -> MlpMixer:
    """Build a ResMLP (Touvron 2022, thesis, eq. 4.2 and 4.3): (B, 3, S, S) -> (B, K).

    Args:
        pretrained: Always False; there are no released weights of these sizes.
        width: Number of channels d of each patch.
        depth: Number of layers; each is one linear map over patches and one MLP (4 d) over channels.
        patch: Side of a patch in pixels; the image side must be a multiple of it.
        layer_scale: Initial value of LayerScale.
        **kwargs: Options of ``timm.models.mlp_mixer.MlpMixer``: num_classes, img_size, drop_path_rate, in_chans, ...
    """
    return build_model_with_cfg(
        MlpMixer,
        "usvit_resmlp",
        pretrained,
        pretrained_filter_fn=filter_mixer,
        feature_cfg={"out_indices": kwargs.pop("out_indices", 3), "feature_cls": "getter"},
        patch_size=patch,
        num_blocks=depth,
        embed_dim=width,
        mlp_ratio=4,
        block_layer=partial(ResBlock, init_values=layer_scale),
        norm_layer=Affine,
        **kwargs,
    )


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
