"""Pre-training tasks: their base class, the context that they are built from, and their names in recipes."""

import importlib
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from usvit.models import Cost, ModelSpec, UpstreamModel
from usvit.training import TrainingTask
from usvit.upstream.config.pretrain import PretrainConfig

UNLABELLED = ("mae", "beit", "tokenizer", "masked_patch", "dino")
"""Values of the config key ``objective`` that need no labels."""


class Inputs(Protocol):
    """Function that maps stored pixels to a network's input, on the device."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    """Per channel, on the scale [0, 1]."""

    def __call__(self, images: Tensor, seeds: Tensor) -> Tensor:
        """Map (B, S, S, 3) uint8 and (B,) int64 to (B, 3, S, S) float, normalized and, if done on the device,
        augmented."""


@dataclass(frozen=True)
class TaskContext:
    """Configuration, data and device of a training, all of which are known before the first step."""

    config: PretrainConfig
    spec: ModelSpec
    n_classes: int
    """Number of outputs of the head; 0 if the images have no labels."""
    n_images: int
    """Number of training images, over all processes."""
    inputs: Inputs
    device: torch.device
    classes: tuple[str, ...] = ()
    """Names of the labels, in order, to compare with a teacher's; empty if they are unknown."""

    @property
    def steps_per_epoch(self) -> float:
        return self.n_images / self.config.train.batch_size

    @property
    def steps(self) -> int:
        """Number of steps of the training."""
        return self.config.train.steps or math.ceil((self.config.train.epochs or 0) * self.steps_per_epoch)


class PretrainingTask(TrainingTask):
    """A training task whose result is a network."""

    upstream_models: tuple[UpstreamModel, ...] = ()
    """The networks that this one learns from."""

    def network(self, module: nn.Module) -> nn.Module:
        """Return the network that the run saves; by default all of ``module``.

        Args:
            module: ``self.module``, or its moving average.
        """
        return module

    def extra_modules(self) -> dict[str, nn.Module]:
        """Return the other modules that the run saves, by file name without suffix; by default none."""
        return {}

    def cost(self, image_size: int) -> Cost | None:
        """Return the operations of a training step per image of ``image_size`` pixels; None if they are unknown."""
        return None

    @abstractmethod
    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute the figures of one validation batch in evaluation mode.

        Args:
            module: ``self.module`` or its moving average, wrapped for precision.
            images: (B, 3, S, S) float, normalized, on the device.
            targets: (B,) int64, on the device.

        Returns:
            Sums over the images, each (): ``val_loss`` and others, such as ``val_accuracy``, the number of correct
            answers.
        """


MakeTask = Callable[[TaskContext, nn.Module], PretrainingTask]
"""Function ``make`` of each task's file, from the context and a new network with ``n_classes`` outputs, on the CPU.

It raises UsvitError if the recipe does not fit the network.
"""


def make_task(config: PretrainConfig) -> MakeTask:
    """Find the function that makes the task of a recipe. Only the file of this task is imported."""
    name = "distill" if config.objective == "supervised" and config.distill.kind != "none" else config.objective
    make: MakeTask = importlib.import_module(f"usvit.upstream.pretraining.{name}").make
    return make
