"""What the objective of a pre-training is made from."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from usvit.config import PretrainConfig
from usvit.models.spec import ModelSpec
from usvit.train.objective import Objective


class Inputs(Protocol):
    """From stored pixels to a network's input, on the device."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    """Of each channel, on the scale [0, 1]."""

    def __call__(self, images: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        """(B, S, S, 3) uint8 and (B,) int64 -> (B, 3, S, S) float, augmented (as far as it is done on the device)
        and normalised."""


@dataclass(frozen=True)
class Plan:
    """Everything that is known before the first step."""

    config: PretrainConfig
    spec: ModelSpec
    n_classes: int
    """Of the head; 0: the images have no labels."""
    n_images: int
    """Training images, over all ranks."""
    inputs: Inputs
    device: torch.device
    classes: tuple[str, ...] = ()
    """Names of the labels, in order, so that a teacher's can be compared; empty: not known."""


class MakeObjective(Protocol):
    """What each family's file offers, under the name ``make``."""

    def __call__(self, plan: Plan, network: nn.Module) -> "UpstreamObjective":
        """
        Args:
            plan: what is known.
            network: of the zoo, new, with a head of ``plan.n_classes`` (or none), on the CPU.

        Raises:
            UsvitError: the recipe does not fit the network.
        """


class UpstreamObjective(Objective, Protocol):
    """An objective that leaves a network.

    Those that can count what an image costs have a method ``cost``, too: from its side to ``usvit.models.count.Cost``.
    """

    def network(self, module: nn.Module) -> nn.Module:
        """Of a module like ``self.module`` (itself, or its running mean), the network that the run keeps."""

    def evaluate(self, module: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Figures of one validation batch, sums over its images, in eval mode: ``val_loss``, and whatever else is known
        (``val_accuracy``: the number of hits).

        Args:
            module: wrapped for precision.
            images: (B, 3, S, S) float, normalised, on the device.
            targets: (B,) int64, on the device.
        """
