"""Supervised pre-training on phantoms, of which everything is known: class, signs of the lesion, and its mask.

A radiologist reads a lesion by its signs (shape, margin, orientation, posterior features: BI-RADS Atlas, ACR 2013). The
phantom draws its lesions from these signs, so that the network can be asked for them, besides the class. The heads of
signs and masks are not kept.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.data.loading import Batch
from usvit.data.phantom import SIGN_LAWS
from usvit.models import Cost, WithMaskHead, blank, caught_inputs, forward_macs, head_parts, mask_loss
from usvit.training import soft_cross_entropy
from usvit.upstream.pretraining.supervised import check_labels, hits
from usvit.upstream.pretraining.task import PretrainingTask, TaskContext


class _WithSignHeads(nn.Module):
    """A network with a decoder of masks and a linear head of signs on the input of its classifier.

    In training mode it returns logits (B, K), signs (B, 8) and mask logits (B, h, w); otherwise the logits alone.
    """

    def __init__(self, network: nn.Module, image_size: int, name: str):
        super().__init__()
        self.masked = WithMaskHead(network, image_size, name)
        width: Any = network.num_features
        self.signs = nn.Linear(width, len(SIGN_LAWS))

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        network = self.masked.network
        if not self.training:
            logits: Tensor = network(images)
            return logits
        with caught_inputs(head_parts(network)) as caught:
            logits, mask = self.masked(images)
        return logits, self.signs(caught[0].flatten(1)), mask


class _SignsAndMasks(PretrainingTask):
    """Cross-entropy of the class, smooth L1 loss of the standardised signs, and the loss of the mask.

    Args:
        context: Configuration, data and device of the training.
        network: Maps (B, 3, S, S) float to (B, K) logits.

    Raises:
        UsvitError: The network has no feature maps.
    """

    def __init__(self, context: TaskContext, network: nn.Module):
        check_labels(context)
        self.module = _WithSignHeads(network, context.config.model.image_size, context.spec.name)
        self._context = context

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        settings = self._context.config
        # The seeds of views are not used: the images were augmented together with their masks (``SignBatches``).
        logits, signs, mask = module(self._context.inputs(portion["images"], torch.zeros_like(portion["targets"])))
        labels = F.one_hot(portion["targets"], self._context.n_classes).float()
        smoothing = settings.loss.label_smoothing
        loss = soft_cross_entropy(logits, labels * (1 - smoothing) + smoothing / self._context.n_classes)
        loss = loss + settings.signs.weight * sign_loss(signs, portion["signs"])
        return loss + settings.signs.mask_weight * mask_loss(mask, portion["lesions"].float() / 255).sum()

    def network(self, module: nn.Module) -> nn.Module:
        return module.masked.network  # type: ignore[union-attr, return-value]

    def cost(self, image_size: int) -> Cost:
        """Return the operations of the network; those of the small heads are not counted."""
        return Cost(forward_macs(self.network(self.module), blank(image_size)))

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return hits(module(images), targets)


def sign_loss(predicted: Tensor, signs: Tensor) -> Tensor:
    """Compute the smooth L1 loss of the signs, summed over images and averaged over the signs.

    Args:
        predicted: (B, 8) float; the loss is computed in float32.
        signs: (B, 8) float, standardised; NaN for an image without a lesion, which does not count.

    Returns:
        () float32.
    """
    known = torch.isfinite(signs)
    difference = F.smooth_l1_loss(predicted.float(), signs.nan_to_num(0.0), reduction="none")
    return torch.where(known, difference, 0.0).mean(1).sum()


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``)."""
    return _SignsAndMasks(context, network)
