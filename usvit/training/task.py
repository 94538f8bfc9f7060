"""Training tasks: the loss, which is the only part in which trainings differ."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import nn

from usvit.data.loading import Batch
from usvit.models import WithMaskHead, WithViewAttention, mask_loss, pooled_views
from usvit.training.losses import WeightedCrossEntropy

Prepare = Callable[[torch.Tensor], torch.Tensor]
"""Maps a batch of images (or features), on the device, to the network's input."""

ON_HOST = "seeds_on_host"
"""Key of a portion under which its ``seeds`` are on the host, so that drawing from them does not wait for a GPU."""


class TrainingTask(ABC):
    """A loss over a batch that may come in portions, and over several processes.

    The loss of a portion is a sum over its examples. The trainer divides it by the ``normalizer`` of the whole batch,
    summed over all processes, so that neither portions nor processes change the result.
    """

    module: nn.Module
    """Everything that is trained or saved: the network, decoders, moving averages, memories. It is trained in place.

    Parts without a gradient (a target network, a memory) are frozen or buffers.
    """

    def normalizer(self, batch: Batch, step: int) -> torch.Tensor:
        """Return the divisor of the summed losses of this process's batch; by default the number of images.

        Args:
            batch: this process's whole batch, on the host.
            step: index of the batch.

        Returns:
            () float, on the host or the device.
        """
        return torch.tensor(float(len(batch["images"])))

    @abstractmethod
    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        """Return the sum of the losses of a portion.

        Args:
            module: ``self.module``, wrapped for precision and processes. Call this one's forward.
            portion: rows of the batch, on the device; its ``seeds`` are also on the host, under ``ON_HOST``.
            step: index of the batch. Random numbers may depend on it and on the ``seeds`` of the examples only.

        Returns:
            () float.
        """

    def on_gradients(self, step: int) -> None:  # noqa: B027 - optional
        """Change the gradients of a whole batch, which may have been clipped. Called before each optimizer step."""

    def on_step_end(self, step: int) -> None:  # noqa: B027 - optional
        """Update what follows the weights, such as a target network. Called after each optimizer step."""


class ClassificationTask(TrainingTask):
    """Weighted cross-entropy of a network's logits, for fine-tuning.

    Args:
        module: maps the output of ``prepare``, (B, 3, S, S) float, to (B, K) logits.
        loss_fn: the weighted loss.
        prepare: maps a batch, on the device, to the module's input: ``Preprocessing.normalised``, or the backbone
            below a head.
    """

    def __init__(self, module: nn.Module, loss_fn: WeightedCrossEntropy, prepare: Prepare):
        self.module, self._loss_fn, self._prepare = module, loss_fn, prepare

    def normalizer(self, batch: Batch, step: int) -> torch.Tensor:
        # A copy from pinned memory does not block: the host need not wait until a GPU has finished its queue.
        device = self._loss_fn.class_weights.device
        votes = batch["votes"].to(device, non_blocking=True) if "votes" in batch else None
        return self._loss_fn.batch_weight(batch["targets"].to(device, non_blocking=True), votes)

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        return self._loss_fn(module(self._prepare(portion["images"])), portion["targets"], portion.get("votes"))


class MaskedClassificationTask(ClassificationTask):
    """Cross-entropy, and the loss of predicted lesion masks for images whose mask is known.

    The loss of an image is that of ``ClassificationTask`` plus ``mask_weight`` times the loss of its mask
    (``usvit.models.mask_loss``); both have the weight of the image's class.

    Args:
        module: The classifier with its decoder. Evaluation and the saved network use the classifier alone.
        loss_fn: The weighted loss of the labels.
        prepare: As for ``ClassificationTask``.
        mask_weight: Weight of the loss of the mask, > 0.
    """

    def __init__(self, module: WithMaskHead, loss_fn: WeightedCrossEntropy, prepare: Prepare, mask_weight: float):
        super().__init__(module, loss_fn, prepare)
        self._mask_weight = mask_weight

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        targets = portion["targets"]
        logits, mask = module(self._prepare(portion["images"]))
        weights = self._loss_fn.class_weights[targets] * portion["masked"] * portion.get("votes", 1)
        of_masks = (weights * mask_loss(mask, portion["lesions"].float() / 255)).sum()
        return self._loss_fn(logits, targets, portion.get("votes")) + self._mask_weight * of_masks


class ViewsTask(ClassificationTask):
    """Cross-entropy of units, whose views are pooled by attention; each unit of a batch has one vote.

    Batches have the key ``units``, (B,) int64, the number of the unit of each image; ``targets`` are those of units.
    Portions would divide units: the trainer's ``micro_batch`` must be None, and there is one process.

    Args:
        module: The classifier with its attention. Evaluation and the saved network use the classifier alone.
        loss_fn: The weighted loss of the labels.
        prepare: As for ``ClassificationTask``.
    """

    def __init__(self, module: WithViewAttention, loss_fn: WeightedCrossEntropy, prepare: Prepare):
        super().__init__(module, loss_fn, prepare)

    def normalizer(self, batch: Batch, step: int) -> torch.Tensor:
        targets = _unit_targets(batch["targets"], batch["units"])
        return self._loss_fn.batch_weight(targets.to(self._loss_fn.class_weights.device, non_blocking=True))

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        logits, scores = module(self._prepare(portion["images"]), portion["units"])
        pooled, _ = pooled_views(logits, scores, portion["units"])
        return self._loss_fn(pooled, _unit_targets(portion["targets"], portion["units"]))


def _unit_targets(targets: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
    """Return the target of each unit, in ascending order of the units' numbers."""
    numbers, position = torch.unique(units, return_inverse=True)
    return targets.new_zeros(len(numbers)).scatter_(0, position, targets)
