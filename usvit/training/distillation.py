"""Distillation: a frozen teacher, and the terms that it adds to the loss; soft, hard, and with a distillation token.

Source: Touvron 2022, thesis, section 3.3 (DeiT); hard distillation without a token is CaiT's (section 3.7).
"""

from typing import Any

import torch
from torch import nn

from usvit.config.sections import DistillConfig
from usvit.data.loading import Batch
from usvit.models import Statistics, UpstreamModel, blank, forward_macs
from usvit.training.losses import WeightedCrossEntropy
from usvit.training.task import ClassificationTask, Prepare


def soft_distillation(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Compute tau^2 KL between the two softmaxes at a temperature for each image: the second term of eq. 3.2.

    The divergence is that of the student from the teacher, sum_c p_t log(p_t / p_s), as in Hinton et al. 2015 and in
    the authors' code (which calls it ``kl_div(student, teacher)``, the order that eq. 3.2 prints). Unlike that code,
    and like the equation, it is not divided by the number of classes.

    Args:
        student, teacher: (B, K) logits.
        temperature: tau > 0.

    Returns:
        (B,) float32, at least 0.
    """
    ours = nn.functional.log_softmax(student.float() / temperature, dim=1)
    its = nn.functional.log_softmax(teacher.float() / temperature, dim=1)
    return temperature**2 * nn.functional.kl_div(ours, its, reduction="none", log_target=True).sum(dim=1)


def hard_distillation(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Compute (B,) the cross-entropy with the teacher's decision argmax_c Z_t(c) for each image (eq. 3.3)."""
    return nn.functional.cross_entropy(student.float(), teacher.argmax(dim=1), reduction="none")


class Teacher:
    """Frozen network that computes logits of the student's images.

    It is not a module, so that it is neither trained nor saved with the student.

    Args:
        model: maps (B, 3, T, T) float to (B, K) logits; it is frozen here.
        image_size: side T of its input in pixels.
        mean, std: normalization of its input, per channel on the scale [0, 1].
        student: mean and standard deviation with which the student's images are normalized.
        device: device of the teacher.
        bf16: whether to use bfloat16 autocast.
        origin: the record of the network, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        image_size: int,
        mean: Statistics,
        std: Statistics,
        student: tuple[Statistics, Statistics],
        device: torch.device,
        bf16: bool = False,
        origin: UpstreamModel | None = None,
    ):
        self.origin = origin
        self.model = model.eval().requires_grad_(False).to(device)
        self._image_size, self._bf16 = image_size, bf16
        # (x * s + m - mean) / std, as one product and one sum per channel
        ours = [torch.tensor(values, dtype=torch.float64) for values in (*student, mean, std)]
        self._scale = (ours[1] / ours[3]).float().view(1, 3, 1, 1).to(device)
        self._shift = ((ours[0] - ours[2]) / ours[3]).float().view(1, 3, 1, 1).to(device)

    def macs(self) -> int:
        """Count the multiply-accumulate operations of one image's forward pass."""
        return forward_macs(self.model, blank(self._image_size))

    @torch.no_grad()
    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (B, 3, S, S) float, the student's input, to (B, K) float32 logits.

        Images are resized if the teacher's input has another size (bicubic with antialiasing).
        """
        images = inputs.float()
        if images.shape[-1] != self._image_size:
            size = (self._image_size, self._image_size)
            images = nn.functional.interpolate(images, size, mode="bicubic", antialias=True)
        images = images * self._scale + self._shift
        self.model.eval()  # train() may have been called on an object that holds it
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self._bf16):
            logits: torch.Tensor = self.model(images)
        return logits.float()


class DistillationTask(ClassificationTask):
    """Weighted cross-entropy of the labels, and the term of a teacher, for fine-tuning.

    The loss of an image is (1 - lambda) L + lambda tau^2 KL for kind soft, and (L + CE(Z_s, y_t)) / 2 for kinds hard
    and token, with the weight of the image's class. The teacher sees the student's view.

    Args:
        module: The student. For kind ``token``, it has two heads and returns both outputs in training mode.
        loss_fn: The weighted loss of the labels.
        prepare: As for ``ClassificationTask``.
        teacher: The teacher.
        distill: ``kind``, ``temperature`` and ``balance``.
    """

    def __init__(
        self,
        module: nn.Module,
        loss_fn: WeightedCrossEntropy,
        prepare: Prepare,
        teacher: Teacher,
        distill: DistillConfig,
    ):
        super().__init__(module, loss_fn, prepare)
        self._teacher, self._distill = teacher, distill
        if hasattr(module, "set_distilled_training"):
            module.set_distilled_training(distill.kind == "token")  # type: ignore[operator]

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        inputs, targets, votes = self._prepare(portion["images"]), portion["targets"], portion.get("votes")
        answers: Any = module(inputs)
        # Kind token has two heads: the class head learns from the labels, the other from the teacher.
        of_labels, of_teacher = answers if isinstance(answers, tuple) else (answers, answers)
        teacher, weights = self._teacher(inputs), self._loss_fn.class_weights[targets]
        soft = self._distill.kind == "soft"
        term = (
            soft_distillation(of_teacher, teacher, self._distill.temperature)
            if soft
            else hard_distillation(of_teacher, teacher)
        )
        balance = self._distill.balance if soft else 0.5
        of_images = (weights * term * (1 if votes is None else votes)).sum()
        return (1 - balance) * self._loss_fn(of_labels, targets, votes) + balance * of_images
