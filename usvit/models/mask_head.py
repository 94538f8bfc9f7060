"""A decoder of lesion masks beside a classifier, for training alone: an auxiliary task on the same feature maps.

The classifier is not changed by it. Its logits are the same with and without the decoder, which is left out of the
saved network.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.errors import UsvitError
from usvit.models.mask_decoder import MaskDecoder
from usvit.models.training_addition import TrainingAddition

_FINEST_STRIDE = 8
"""Smallest stride of the feature maps that are decoded: at 128 pixels a map of 16 x 16."""
DICE_WEIGHT = 0.5
"""Weight of the Dice loss beside the cross-entropy; a small lesion hardly changes the latter. Ours."""


class WithMaskHead(TrainingAddition):
    """A classifier with a decoder of lesion masks (``MaskDecoder``).

    In training mode, ``forward`` returns the logits, (B, K), and the logits of the mask, (B, h, w). In evaluation mode
    it returns the logits of the classifier alone. A network that predicts masks itself (``forward_with_mask`` of
    ``usvit_small``) gets no further decoder.

    Args:
        network: Classifier with timm's ``forward_intermediates`` and ``forward_head``.
        image_size: Side of the input in pixels, which decides which feature maps are decoded.
        name: Name of the model, for the error.

    Raises:
        UsvitError: The network has no feature maps of a stride of at least ``_FINEST_STRIDE``.
    """

    def __init__(self, network: nn.Module, image_size: int, name: str):
        super().__init__(network)
        self.levels: list[int] = []
        self.decoder: MaskDecoder | None = None
        if not hasattr(network, "forward_with_mask"):
            self.levels, channels = _levels(network, image_size, name)
            self.decoder = MaskDecoder(channels)

    def forward(self, images: Tensor) -> Any:
        return self.with_mask(images) if self.training else self.network(images)

    def with_mask(self, images: Tensor) -> Any:
        """Return the logits, (B, K), and the logits of the mask, (B, h, w), in either mode."""
        network: Any = self.network
        if self.decoder is None:
            return network.forward_with_mask(images)
        last, maps = network.forward_intermediates(
            images, indices=self.levels
        )  # maps: (B, C_i, h_i, w_i), finest first
        return network.forward_head(last), self.decoder(maps)


def mask_loss(logits: Tensor, lesions: Tensor) -> Tensor:
    """Compute the loss of predicted lesion masks: cross-entropy and ``DICE_WEIGHT`` times the Dice loss.

    Args:
        logits: (B, h, w) float; the loss is computed in float32.
        lesions: (B, H, W) float in [0, 1], share of each cell that the lesion covers; averaged to (h, w).

    Returns:
        (B,) float32, in nats for the cross-entropy, which is the mean over the cells. An image without a lesion has an
        empty mask. The Dice loss, 1 - (2 sum p y + 1) / (sum p + sum y + 1), is that of Milletari et al. 2016 (V-Net)
        with one count added to both, so that two empty masks agree.
    """
    logits = logits.float()
    target = F.adaptive_avg_pool2d(lesions[:, None], (logits.shape[-2], logits.shape[-1]))[:, 0]
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none").mean((1, 2))
    p = logits.sigmoid()
    overlap, total = (p * target).sum((1, 2)), p.sum((1, 2)) + target.sum((1, 2))
    return entropy + DICE_WEIGHT * (1 - (2 * overlap + 1) / (total + 1))


def _levels(network: nn.Module, image_size: int, name: str) -> tuple[list[int], list[int]]:
    """Return the indices and channels of the last feature map of each size, of those that are coarse enough."""
    maps = feature_maps(network, image_size)
    if maps is None or not hasattr(network, "forward_head"):
        raise UsvitError(
            f"loss.mask_weight trains a decoder on feature maps, and the model {name} does not expose any. Set "
            "loss.mask_weight to 0, or choose another model, such as usvit_small, resnet50 or timm:convnext_atto."
        )
    levels = last_of_each_size(maps, image_size // _FINEST_STRIDE)
    if not levels:
        raise UsvitError(
            f"loss.mask_weight needs feature maps of a stride of at least {_FINEST_STRIDE}, which the model {name} "
            f"does not have at {image_size} pixels. Set loss.mask_weight to 0."
        )
    return levels, [maps[level].shape[1] for level in levels]


def feature_maps(network: nn.Module, image_size: int) -> list[Tensor] | None:
    """Return all feature maps (B, C_i, h_i, w_i) of a black image; None if the network does not expose any.

    Args:
        network: A network with timm's ``forward_intermediates``. Its mode is kept.
        image_size: Side of the input in pixels.
    """
    method = getattr(network, "forward_intermediates", None)
    if method is None or not {"output_fmt", "options"} & set(inspect.signature(method).parameters):
        return None
    mode, probe = network.training, next(network.parameters())
    network.eval()
    with torch.no_grad():
        blank = torch.zeros(1, 3, image_size, image_size, device=probe.device)
        maps: list[Tensor] = method(blank, intermediates_only=True)
    network.train(mode)
    return maps


def last_of_each_size(maps: list[Tensor], largest: int) -> list[int]:
    """Return the indices of the last feature map of each size, finest first, of those with at most ``largest`` cells
    along a side.
    """
    return sorted({one.shape[-1]: index for index, one in enumerate(maps) if one.shape[-1] <= largest}.values())
