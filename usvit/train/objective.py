"""What a training minimises: the one thing in which trainings differ."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from usvit.data.stream import Batch
from usvit.train.losses import WeightedCrossEntropy

Prepare = Callable[[torch.Tensor], torch.Tensor]
"""From a batch of images (or features), on the device, to the network's input."""


ON_HOST = "seeds_on_host"
"""In a portion beside ``seeds``: the same on the host, for what is drawn there without waiting for a GPU."""


class Objective(Protocol):
    """A loss over a batch that may come in portions, and over several processes.

    A portion's loss is a sum over its examples; the trainer divides it by ``weight`` of the whole batch, over all
    processes, so that neither portions nor processes change the result.
    """

    @property
    def module(self) -> nn.Module:
        """Everything that trains or is saved with it: the network, decoders, running means, memories.

        What has no gradient (a target network, a memory) is frozen or a buffer. It is trained in place.
        """

    def weight(self, batch: Batch, step: int) -> torch.Tensor:
        """() what the sum of a process's losses is divided by, on the host or the device: the number of examples, say.

        Args:
            batch: this process's whole batch, on the host.
            step: its number.
        """

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        """() sum of the losses of a portion.

        Args:
            module: ``self.module``, wrapped for precision and processes: its forward must be what is called.
            portion: rows of the batch, on the device; where it has ``seeds``, they are on the host, too (``ON_HOST``).
            step: the batch's number: randomness comes from it, and from each example's own ``seeds``, alone.
        """

    def updated(self, step: int) -> None:
        """Called after the weights have moved: running means follow here."""


class Classify:
    """Weighted cross-entropy of a network's logits: fine-tuning.

    Args:
        module: from what ``prepare`` gives, (B, 3, S, S) float, to (B, K) logits.
        loss_fn: the weighted loss.
        prepare: from a batch to the module's input, applied on the device: ``Preprocessing.normalised``, or what
            makes the input of a head.
    """

    def __init__(self, module: nn.Module, loss_fn: WeightedCrossEntropy, prepare: Prepare):
        self.module, self._loss_fn, self._prepare = module, loss_fn, prepare

    def weight(self, batch: Batch, step: int) -> torch.Tensor:
        # Pinned, so that the host need not wait until a GPU has done all that it was given.
        return self._loss_fn.batch_weight(batch["targets"].to(self._loss_fn.class_weights.device, non_blocking=True))

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        return self._loss_fn(module(self._prepare(portion["images"])), portion["targets"])

    def updated(self, step: int) -> None:
        pass
