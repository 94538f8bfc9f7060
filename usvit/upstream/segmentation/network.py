"""The whole segmenter: a network with its maps and a head, or MONAI's U-Net."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.errors import UsvitError
from usvit.models import feature_maps, last_of_each_size
from usvit.upstream.config.segment import SegmentConfig, SegmentHead
from usvit.upstream.segmentation.heads import LinearMasks, MaskTransformer, Pyramid, UPerNet
from usvit.upstream.segmentation.mask_rcnn import MaskRCNNMasks

IGNORED = 255
"""Label of a pixel that does not count."""
_LAYERS = 4
"""Layers of a network without stages that UPerNet and Mask R-CNN read."""


class SegmentationNetwork(nn.Module):
    """Network from images (B, 3, S, S) to logits (B, K, S, S).

    Args:
        network: The network whose maps are read; None if the head reads the images.
        levels: Indices of its maps, finest first (``forward_intermediates``).
        decoder: Maps these maps, or the images, to logits (B, K, h, w).
    """

    def __init__(self, network: nn.Module | None, levels: Sequence[int], decoder: nn.Module):
        super().__init__()
        self.network, self.levels, self.decoder = network, list(levels), decoder
        # The last layer of a plain ViT is read as its own head reads it.
        plain = network is not None and len(self.levels) == 1
        self.options = {"norm": True} if plain and hasattr(network, "blocks") else {}

    @property
    def has_own_loss(self) -> bool:
        """Whether the head computes its loss from the labels, instead of that of its logits."""
        return isinstance(self.decoder, MaskRCNNMasks)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits; with labels (B, S, S), the summed losses of a head with its own loss."""
        read: Any = images if self.network is None else self._maps(self.network, images)
        if labels is not None:
            assert isinstance(self.decoder, MaskRCNNMasks)
            return self.decoder.losses(read, labels)
        logits: Tensor = self.decoder(read)
        return F.interpolate(logits.float(), size=images.shape[-2:], mode="bilinear", align_corners=False)

    def _maps(self, network: Any, images: Tensor) -> list[Tensor]:
        layers = sorted({*self.levels})  # a shallow network has a layer several times
        maps = network.forward_intermediates(images, indices=layers, intermediates_only=True, **self.options)
        return [maps[layers.index(level)] for level in self.levels]


def make_segmenter(
    network: nn.Module | None, head: SegmentHead, n_classes: int, image_size: int, settings: SegmentConfig, name: str
) -> SegmentationNetwork:
    """Put a head on a network.

    Args:
        network: The network with its initial weights; not used for ``unet``.
        head: The head.
        n_classes: K.
        image_size: Side S of the input in pixels.
        settings: Width, depth and channels of the heads.
        name: Name of the network, for errors.

    Raises:
        UsvitError: MONAI is missing, the network has no feature maps, or the input is too small for the U-Net.
    """
    if head == "unet":
        return SegmentationNetwork(None, [], _unet(n_classes, image_size, settings))
    assert network is not None
    maps = feature_maps(network, image_size)
    if maps is None:
        raise UsvitError(
            f"segment.head={head} reads feature maps, and the model {name} does not expose any. Choose another model, "
            "such as usvit_small, resnet50 or vit_ti16, or set segment.head=unet."
        )
    levels = last_of_each_size(maps, image_size // 4)  # the finest stride of a backbone of UPerNet
    pyramid = len(levels) == 1 and head in ("upernet", "mask_rcnn")
    if pyramid:  # layers of one size: evenly spaced ones, the last among them
        levels = (np.linspace(0, len(maps), _LAYERS + 1)[1:].round().astype(int) - 1).clip(0).tolist()
    widths = [maps[level].shape[1] for level in levels]
    neck = Pyramid(widths[0]) if pyramid else nn.Identity()
    if head == "mask_rcnn":
        strides = [image_size // maps[level].shape[-1] for level in levels]
        if pyramid:
            strides = [max(1, int(scale * one)) for scale, one in zip((0.25, 0.5, 1, 2), strides, strict=True)]
        return SegmentationNetwork(network, levels, MaskRCNNMasks(widths, strides, image_size, settings.width, neck))
    makers = {"linear": LinearMasks, "segmenter": MaskTransformer, "upernet": UPerNet}
    more = {"segmenter": {"depth": settings.depth}, "upernet": {"width": settings.width}}.get(head, {})
    decoder: nn.Module = makers[head](widths, n_classes, **more)
    if pyramid:
        decoder = nn.Sequential(neck, decoder)
    return SegmentationNetwork(network, levels, decoder)


def dense_loss(logits: Tensor, labels: Tensor, kind: str) -> Tensor:
    """Compute the summed losses of images: cross-entropy over the pixels that count, and the soft Dice loss.

    Args:
        logits: (B, K, S, S) float.
        labels: (B, S, S) int64, ``IGNORED`` where a pixel does not count.
        kind: ``dice_ce`` or ``ce``.

    Returns:
        () float, the sum over images. Without ignored pixels, ``dice_ce`` is B times MONAI's ``DiceCELoss`` (softmax,
        mean over images and classes).
    """
    known = labels != IGNORED
    entropy = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    loss = (entropy.sum((1, 2)) / known.sum((1, 2)).clamp(min=1)).sum()
    if kind == "ce":
        return loss
    from monai.losses import DiceLoss

    wanted = F.one_hot(labels.where(known, 0), logits.shape[1]).permute(0, 3, 1, 2)
    counted = known[:, None]
    dice: Tensor = DiceLoss(reduction="none")(logits.softmax(1) * counted, (wanted * counted).float())
    return loss + dice.flatten(1).mean(1).sum()


def refuse_without_monai(setting: str) -> None:
    """Raise ``UsvitError`` if MONAI is not installed."""
    if find_spec("monai") is None:
        raise UsvitError(
            f"{setting} needs MONAI, which is not installed: pip install 'usvit[explain]'. Without it: "
            "segment.loss=ce, and another head than unet."
        )


def _unet(n_classes: int, image_size: int, settings: SegmentConfig) -> nn.Module:
    refuse_without_monai("segment.head=unet")
    from monai.networks.nets import UNet

    strides = [2] * (len(settings.channels) - 1)
    if image_size % 2 ** len(strides):
        raise UsvitError(
            f"segment.head=unet halves the image {len(strides)} times, and model.image_size={image_size} is no "
            f"multiple of {2 ** len(strides)}. Choose a multiple, or fewer segment.channels."
        )
    network: nn.Module = UNet(
        spatial_dims=2,
        in_channels=3,
        out_channels=n_classes,
        channels=settings.channels,
        strides=strides,
        num_res_units=2,
    )
    return network


def parameters_of(module: nn.Module) -> int:
    """Count the trained parameters."""
    return sum(one.numel() for one in module.parameters() if one.requires_grad)
