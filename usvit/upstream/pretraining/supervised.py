"""Supervised pre-training, as for the original ViT, DeiT and its successors."""

import torch
from torch import nn
from torch.nn import functional as F

from usvit.data.loading import Batch
from usvit.errors import UsvitError
from usvit.models import Cost, FlexiblePatchEmbed, blank, forward_macs, make_flexible
from usvit.seeding import derive_seed
from usvit.training import Mixup, binary_cross_entropy, soft_cross_entropy
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.pretraining.task import PretrainingTask, TaskContext

TOP = 5


class Supervised(PretrainingTask):
    """(Binary) cross-entropy with labels that may be smoothed and mixed.

    Args:
        context: configuration, data and device of the training.
        network: maps (B, 3, S, S) float to (B, K) logits.

    Raises:
        UsvitError: the source has no labels, or the recipe's settings contradict each other.
    """

    def __init__(self, context: TaskContext, network: nn.Module):
        check_labels(context)
        self.module = network
        self._context = context
        self._flexible = flexible(context, network)

    def normalizer(self, batch: Batch, step: int) -> torch.Tensor:
        """Return the number of images, after checking the labels, which are still on the host."""
        check_targets(batch["targets"], self._context.n_classes)
        return torch.tensor(float(len(batch["targets"])))

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        self._set_patch(step)
        images, labels = mixed_inputs(self._context, portion, step)
        return self._label_loss(module(images), labels)

    def cost(self, image_size: int) -> Cost:
        """Return the operations per image; with random patch sizes, their mean over the sizes."""
        if self._flexible is None:
            return Cost(forward_macs(self.module, blank(image_size)))
        macs = []
        for patch in self._flexible.patches:
            self._flexible.patch = patch
            macs.append(forward_macs(self.module, blank(image_size)))
        self._flexible.patch = self._flexible.own
        return Cost(sum(macs) // len(macs))

    def evaluate(self, module: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        if self._flexible is not None:
            self._flexible.patch = self._flexible.own
        return hits(module(images), targets)

    def _set_patch(self, step: int) -> None:
        """Set the patch size of a step; it follows from the run's seed, so all processes and portions have the same."""
        if self._flexible is not None:
            self._flexible.patch = drawn_patch(self._context.config, step)

    def _label_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute () the sum over images of the configured loss; ``labels`` are those of ``mixed_inputs``."""
        settings = self._context.config.loss
        if settings.kind == "bce":
            return binary_cross_entropy(logits, labels, settings.bce_threshold)
        return soft_cross_entropy(logits, labels)


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``)."""
    return Supervised(context, network)


def flexible(context: TaskContext, network: nn.Module) -> FlexiblePatchEmbed | None:
    """Let the network take the patch sizes of ``flexi.patches``; None if the recipe has none.

    Raises:
        UsvitError: the network cannot take them.
    """
    settings = context.config.flexi
    if settings.patches is None:
        return None
    seed = derive_seed(context.config.seed, "flexi") if context.config.model.weights == "scratch" else None
    try:
        return make_flexible(network, settings.patches, kernel=settings.kernel, grid=settings.grid, seed=seed)
    except ValueError as error:
        raise UsvitError(
            f"flexi.patches {', '.join(map(str, settings.patches))} do not fit {context.config.model.name}: {error}."
        ) from error


def drawn_patch(config: PretrainConfig, step: int) -> int:
    """Draw the patch size of a step from ``flexi.patches``, each with the same probability."""
    patches = config.flexi.patches or ()
    return patches[derive_seed(config.seed, "patch", step) % len(patches)]


def mixed_inputs(context: TaskContext, portion: Batch, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Augment, normalize and mix the images of a portion, and mix their labels.

    Args:
        context: configuration, data and device of the training.
        portion: ``images`` (B, S, S, 3) uint8, ``targets`` and ``seeds`` (B,) int64, on the device.
        step: index of the batch; it decides together with the run's seed how the whole batch is mixed.

    Returns:
        (B, 3, S, S) float images, and (B, K) float labels, smoothed by ``loss.label_smoothing``.

    Raises:
        UsvitError: the number of images to mix is odd.
    """
    mix = Mixup(context.config.mix, context.n_classes, context.config.loss.label_smoothing)
    images = context.inputs(portion["images"], portion["seeds"])
    return mix(images, portion["targets"], derive_seed(context.config.seed, "mix", step))


def hits(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    """Compute cross-entropy in nats, correct answers and top-5 answers, summed over a validation batch.

    Args:
        logits: (B, K).
        targets: (B,) int64.

    Returns:
        ``val_loss``, ``val_accuracy`` and, for more than five classes, ``val_top5``, each ().
    """
    logits = logits.float()
    figures = {
        "val_loss": F.cross_entropy(logits, targets, reduction="sum"),
        "val_accuracy": (logits.argmax(1) == targets).sum(),
    }
    if logits.shape[1] > TOP:
        figures["val_top5"] = (logits.topk(TOP, dim=1).indices == targets[:, None]).sum()
    return figures


def check_labels(context: TaskContext) -> None:
    """Raise if the source and the settings do not give meaningful labels.

    Raises:
        UsvitError: no labels, class weights, a threshold below the smoothing, or an odd portion of mixed images.
    """
    config = context.config
    if context.n_classes < 2:
        raise UsvitError(
            f"The source {config.source.name} has no labels. Choose another source.name, or an objective that needs no "
            "labels: mae, beit, masked_patch, dino."
        )
    if config.loss.class_weights != "none":
        raise UsvitError("Pre-training does not support class weights. Set loss.class_weights to none.")
    smoothing, threshold = config.loss.label_smoothing, config.loss.bce_threshold
    if config.loss.kind == "bce" and threshold is not None and smoothing / context.n_classes > threshold:
        raise UsvitError(
            f"With loss.label_smoothing {smoothing}, all {context.n_classes} classes are above loss.bce_threshold "
            f"{threshold} and would count as present. Set label_smoothing to 0, or a higher threshold."
        )
    mixes = config.mix.mixup > 0 or config.mix.cutmix > 0
    if mixes and config.train.micro_batch is not None and config.train.micro_batch % 2:
        raise UsvitError(
            f"mix pairs the images of a micro-batch, but train.micro_batch is {config.train.micro_batch}. Set it to an "
            "even number."
        )


def check_targets(targets: torch.Tensor, n_classes: int) -> None:
    """Raise if a label has no output in the head.

    Args:
        targets: (B,) int64, on the host.
        n_classes: number of outputs K of the head.

    Raises:
        UsvitError: a label is wrong; the message names the first one.
    """
    wrong = targets[(targets < 0) | (targets >= n_classes)]
    if len(wrong):
        label = int(wrong[0])
        if label < 0:
            raise UsvitError(
                "An image of the source has no label, but the objective supervised needs a label for each image."
            )
        raise UsvitError(
            f"An image has the label {label}, but the head has the outputs 0 to {n_classes - 1}: the source's labels "
            "and its list of classes do not match."
        )
