"""Learning labels: what DeiT and its successors train, and the original ViT."""

import torch
from torch import nn
from torch.nn import functional as F

from usvit.data.stream import Batch
from usvit.errors import UsvitError
from usvit.models.count import Cost, blank, forward_macs
from usvit.pretrain.plan import Plan, UpstreamObjective
from usvit.seeding import derive_seed
from usvit.train.mix import Mix
from usvit.train.soft_losses import binary_cross_entropy, soft_cross_entropy

TOP = 5


class Supervised:
    """(Binary) cross-entropy of labels that may be smoothed and mixed.

    Args:
        plan: what is known.
        network: from (B, 3, S, S) float to (B, K) logits.

    Raises:
        UsvitError: the source has no labels, or the recipe's settings do not go together.
    """

    def __init__(self, plan: Plan, network: nn.Module):
        check_labels(plan)
        self.module = network
        self._plan = plan

    def weight(self, batch: Batch, step: int) -> torch.Tensor:
        """The number of images; here, where labels are still on the host, they are checked."""
        check_targets(batch["targets"], self._plan.n_classes)
        return torch.tensor(float(len(batch["targets"])))

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        images, labels = mixed_inputs(self._plan, portion, step)
        return self._label_loss(module(images), labels)

    def updated(self, step: int) -> None:
        pass

    def network(self, module: nn.Module) -> nn.Module:
        return module

    def cost(self, image_size: int) -> Cost:
        return Cost(forward_macs(self.module, blank(image_size)))

    def evaluate(self, module: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return hits(module(images), targets)

    def _label_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """() sum over images of the loss that the configuration names; ``labels`` as of ``mixed_inputs``."""
        settings = self._plan.config.loss
        if settings.kind == "bce":
            return binary_cross_entropy(logits, labels, settings.bce_threshold)
        return soft_cross_entropy(logits, labels)


def make(plan: Plan, network: nn.Module) -> UpstreamObjective:
    """``Supervised``."""
    return Supervised(plan, network)


def mixed_inputs(plan: Plan, portion: Batch, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What the network sees of a portion, and what it should say: augmented, normalised, mixed.

    Args:
        plan: what is known.
        portion: ``images`` (B, S, S, 3) uint8, ``targets`` and ``seeds`` (B,) int64, on the device.
        step: the batch's number; with the run's seed it decides how all of it is mixed.

    Returns:
        (B, 3, S, S) float, and (B, K) float labels, smoothed as ``loss.label_smoothing`` says.

    Raises:
        UsvitError: an odd number of images is to be mixed.
    """
    mix = Mix(plan.config.mix, plan.n_classes, plan.config.loss.label_smoothing)
    images = plan.inputs(portion["images"], portion["seeds"])
    return mix(images, portion["targets"], derive_seed(plan.config.seed, "mix", step))


def hits(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    """Sums over images of a validation batch: cross-entropy in nats, and how often the label is first, or in the top 5.

    Args:
        logits: (B, K).
        targets: (B,) int64.

    Returns:
        ``val_loss``, ``val_accuracy`` and, with more than five classes, ``val_top5``, each ().
    """
    logits = logits.float()
    figures = {
        "val_loss": F.cross_entropy(logits, targets, reduction="sum"),
        "val_accuracy": (logits.argmax(1) == targets).sum(),
    }
    if logits.shape[1] > TOP:
        figures["val_top5"] = (logits.topk(TOP, dim=1).indices == targets[:, None]).sum()
    return figures


def check_labels(plan: Plan) -> None:
    """Refuse a source and settings that give no sensible labels.

    Raises:
        UsvitError: see its text.
    """
    config = plan.config
    if plan.n_classes < 2:
        raise UsvitError(
            f"The source {config.source.name} has no labels to learn. Choose another source.name, or an objective that "
            "needs none: mae, beit, masked_patch."
        )
    if config.loss.class_weights != "none":
        raise UsvitError("Upstream classes are not weighted: set loss.class_weights to none.")
    smoothing, threshold = config.loss.label_smoothing, config.loss.bce_threshold
    if config.loss.kind == "bce" and threshold is not None and smoothing / plan.n_classes > threshold:
        raise UsvitError(
            f"With loss.label_smoothing {smoothing} every one of {plan.n_classes} classes is above loss.bce_threshold "
            f"{threshold}, and would count as present. Set label_smoothing to 0, or a higher threshold."
        )
    mixes = config.mix.mixup > 0 or config.mix.cutmix > 0
    if mixes and config.train.micro_batch is not None and config.train.micro_batch % 2:
        raise UsvitError(
            f"mix pairs the images of a portion, and train.micro_batch is {config.train.micro_batch}: make it even."
        )


def check_targets(targets: torch.Tensor, n_classes: int) -> None:
    """Refuse labels that the head has no output for.

    Args:
        targets: (B,) int64, on the host.
        n_classes: outputs K of the head.

    Raises:
        UsvitError: the first wrong label is named.
    """
    wrong = targets[(targets < 0) | (targets >= n_classes)]
    if len(wrong):
        label = int(wrong[0])
        if label < 0:
            raise UsvitError("An image of the source has no label, and the objective supervised needs one of each.")
        raise UsvitError(
            f"An image has the label {label}, and the head has the outputs 0 to {n_classes - 1}: "
            "the source's labels and its list of classes do not belong together."
        )
