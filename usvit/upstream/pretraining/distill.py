"""Distillation: learning from labels and a teacher together; soft, hard, and with a distillation token.

Source: Touvron 2022, thesis, section 3.3 (DeiT); hard distillation without a token is CaiT's (section 3.7).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from usvit.data.loading import Batch
from usvit.errors import UsvitError
from usvit.models import ZOO, Cost, has_distillation_head
from usvit.training import Teacher, hard_distillation, soft_distillation
from usvit.upstream.pretraining import supervised
from usvit.upstream.pretraining.task import TaskContext
from usvit.upstream.pretraining.teacher import make_teacher


class Distill(supervised.Supervised):
    """Supervised learning with a second term in the loss, for the teacher.

    At test time, a network with a distillation token returns the mean of the logits of its two heads, as in timm and in
    the authors' code; the thesis (section 3.3) adds the two softmaxes. Their decisions differ only if the heads
    disagree. Validation measures what the saved network returns.

    Args:
        context: configuration, data and device of the training; ``context.config.distill`` has the settings.
        network: the student. For kind ``token``, it has two heads and returns both outputs in training mode.
        teacher: the teacher.
    """

    def __init__(self, context: TaskContext, network: nn.Module, teacher: Teacher):
        super().__init__(context, network)
        self.teacher, self._distill = teacher, context.config.distill
        self.upstream_models = () if teacher.origin is None else (teacher.origin,)

    def cost(self, image_size: int) -> Cost:
        return replace(super().cost(image_size), frozen=self.teacher.macs())

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        """Compute () the sum over images of the loss.

        It is (1 - lambda) L + lambda tau^2 KL for kind soft, and (L + CE(Z_s, y_t)) / 2 for kinds hard and token.

        L is the recipe's loss of the labels: smoothed, mixed, cross-entropy or binary. The teacher sees the student's
        view, including mixed images.
        """
        self._set_patch(step)
        inputs, soft = supervised.mixed_inputs(self._context, portion, step)
        answers: Any = module(inputs)
        # Kind token has two heads: the class head learns from the labels, the other from the teacher.
        of_labels, of_teacher = answers if isinstance(answers, tuple) else (answers, answers)
        labels = self._label_loss(of_labels, soft)
        teacher = self.teacher(inputs)
        if self._distill.kind == "soft":
            balance, temperature = self._distill.balance, self._distill.temperature
            return (1 - balance) * labels + balance * soft_distillation(of_teacher, teacher, temperature).sum()
        return 0.5 * labels + 0.5 * hard_distillation(of_teacher, teacher).sum()


def make(context: TaskContext, network: nn.Module) -> Distill:
    """Make the task of a recipe with ``distill.kind``.

    Raises:
        UsvitError: the recipe needs a distillation head that the network lacks, the images have no labels, or the
            teacher is not found, has other classes, or does not support the image size.
    """
    config = context.config
    if config.distill.kind == "token" and not has_distillation_head(network):
        able = ", ".join(name for name in ZOO if name.endswith("_distilled"))
        raise UsvitError(
            f"The model {config.model.name} has no distillation token with its own head, which distill.kind token "
            f"trains. Choose a model that has one ({able}), or set distill.kind=hard, which needs none."
        )
    if hasattr(network, "set_distilled_training"):
        network.set_distilled_training(config.distill.kind == "token")  # type: ignore[operator]
    student = (context.inputs.mean, context.inputs.std)
    teacher = make_teacher(config, student, n_classes=context.n_classes, classes=context.classes, device=context.device)
    return Distill(context, network, teacher)
