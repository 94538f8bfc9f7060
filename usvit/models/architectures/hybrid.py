"""Hybrids: a ResNet whose feature maps are the tokens of a ViT (Dosovitskiy et al. 2021, sections 3.1 and 4.1).

"We feed the intermediate feature maps into ViT with patch size of one 'pixel'. To experiment with different sequence
lengths, we either (i) take the output of stage 4 of a regular ResNet50 or (ii) remove stage 4, place the same number of
layers in stage 3 (keeping the total number of layers), and take the output of this extended stage 3."

(i) is ``layers=(3, 4, 6, 3)``, 32 pixels per token: the paper's R50+ViT-B/32 and L/32. (ii) is ``layers=(3, 4, 9)``, 16
pixels per token: R50+ViT-B/16 and L/16. The ResNet is BiT's (group normalisation, standardised convolutions), built as
in timm's ``vit_base_r50_s16_224``, with the same keys in its state dict.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from timm.layers import HybridEmbed, StdConv2dSame, to_2tuple
from timm.models import generate_default_cfgs, register_model
from timm.models.resnetv2 import ResNetV2

from usvit.models.architectures.cfg import untrained
from usvit.models.architectures.vit import ViT, create_vit

default_cfgs = generate_default_cfgs({"usvit_hybrid.untrained": untrained("patch_embed.backbone.stem.conv")})


@register_model
def usvit_hybrid(pretrained: bool = False, **options: Any) -> ViT:
    """Build a hybrid, by default R50+ViT-B/32; ``options`` are those of ``_resnet_embed`` and ``ViT``."""
    base: dict[str, Any] = {"width": 768, "depth": 12, "mlp": 3072, "heads": 12, "patch": 1}
    options = base | options
    layers = options.pop("layers", (3, 4, 6, 3))
    if options.get("stem", "linear") != "linear":
        raise ValueError(f"a hybrid's stem is its ResNet, so there is no stem '{options['stem']}'")
    embed = _resnet_embed(layers, options["patch"], options.get("img_size", 224), options.get("in_chans", 3))
    return create_vit("usvit_hybrid", pretrained, embed_layer=embed, **options)


def _resnet_embed(
    layers: Sequence[int], patch: int, img_size: int | tuple[int, int], in_chans: int = 3
) -> "partial[HybridEmbed]":
    """Return the constructor of a hybrid's embedding: (B, C, S, S) -> (B, (S / reduction / patch)^2, D).

    Args:
        layers: Number of blocks in each stage; 2, 3 or 4 stages reduce the image 8-, 16- or 32-fold.
        patch: Side of a patch in the feature map.
        img_size: Side of the image S, in pixels.
        in_chans: Number of channels C.

    Raises:
        ValueError: If the number of stages is not 2 to 4, a stage has no blocks, or the image side is not a multiple
            of the side of the region that becomes one token.
    """
    if not 2 <= len(layers) <= 4 or min(layers) < 1:
        raise ValueError(f"a hybrid's ResNet has 2 to 4 stages of at least one block, not layers={tuple(layers)}")
    reduction = 2 ** (len(layers) + 1) * patch
    for side in to_2tuple(img_size):
        if side % reduction or side < reduction:
            raise ValueError(f"images of {side} pixels are not a multiple of the {reduction} that become one token")
    backbone = ResNetV2(
        layers=list(layers),
        num_classes=0,
        global_pool="",
        in_chans=in_chans,
        preact=False,
        stem_type="same",
        conv_layer=partial(StdConv2dSame, eps=1e-8),
    )
    return partial(HybridEmbed, backbone=backbone)
