"""Learning from labels and from a teacher at once: soft, hard, and by a distillation token.

Source: Touvron 2022, thesis, section 3.3 (DeiT); hard distillation without a token is CaiT's (section 3.7).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from usvit.data.stream import Batch
from usvit.errors import UsvitError
from usvit.models.count import Cost
from usvit.models.zoo import ZOO
from usvit.pretrain import supervised
from usvit.pretrain.origin import Origin
from usvit.pretrain.plan import Plan
from usvit.pretrain.teacher import Teacher, make_teacher


def soft_distillation(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """tau^2 KL between the two softmaxes at a temperature, a sum over images: the second term of eq. 3.2.

    The divergence is that of the student from the teacher, sum_c p_t log(p_t / p_s), as in Hinton et al. 2015 and in
    the authors' code (which calls it ``kl_div(student, teacher)``, the order that eq. 3.2 prints). Unlike that code,
    and like the equation, it is not divided by the number of classes.

    Args:
        student, teacher: (B, K) logits.
        temperature: tau > 0.

    Returns:
        () float32, at least 0.
    """
    ours = nn.functional.log_softmax(student.float() / temperature, dim=1)
    its = nn.functional.log_softmax(teacher.float() / temperature, dim=1)
    return temperature**2 * nn.functional.kl_div(ours, its, reduction="sum", log_target=True)


def hard_distillation(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """() cross-entropy of the teacher's decision argmax_c Z_t(c), a sum over images: the second term of eq. 3.3."""
    return nn.functional.cross_entropy(student.float(), teacher.argmax(dim=1), reduction="sum")


def has_distillation_head(network: nn.Module) -> bool:
    """Whether a network ends in two classifiers, one of the class token and one of the distillation token."""
    head = network.get_classifier() if hasattr(network, "get_classifier") else None  # type: ignore[operator]
    return hasattr(network, "set_distilled_training") and isinstance(head, tuple) and len(head) == 2


class Distill(supervised.Supervised):
    """Supervised learning whose loss has a second, the teacher's, part.

    At test time a network with a distillation token gives the mean of the logits of its two heads, as timm and the
    authors' code do; the thesis (section 3.3) adds the two softmaxes. The two decide alike but where the heads
    disagree. What is measured here is what the kept network does.

    Args:
        plan: what is known; ``plan.config.distill`` says how.
        network: the student; of kind ``token``, with two heads, which it gives apart in training from now on.
        teacher: what is asked.
    """

    def __init__(self, plan: Plan, network: nn.Module, teacher: Teacher):
        super().__init__(plan, network)
        self.teacher, self._distill = teacher, plan.config.distill

    @property
    def learnt_from(self) -> tuple[Origin, ...]:
        """The teacher, where it is known which network it is."""
        return () if self.teacher.origin is None else (self.teacher.origin,)

    def cost(self, image_size: int) -> Cost:
        return replace(super().cost(image_size), frozen=self.teacher.macs())

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        """() sum over images of (1 - lambda) L + lambda tau^2 KL (soft), or of (L + CE(Z_s, y_t)) / 2 (hard, token).

        L is the loss of the labels as the recipe has it: smoothed, mixed, cross-entropy or binary. The teacher sees
        the student's own view, mixed images too.
        """
        inputs, soft = supervised.mixed_inputs(self._plan, portion, step)
        answers: Any = module(inputs)
        # Two heads of kind token: the class head answers to the labels, the other to the teacher.
        of_labels, of_teacher = answers if isinstance(answers, tuple) else (answers, answers)
        labels = self._label_loss(of_labels, soft)
        teacher = self.teacher(inputs)
        if self._distill.kind == "soft":
            balance, temperature = self._distill.balance, self._distill.temperature
            return (1 - balance) * labels + balance * soft_distillation(of_teacher, teacher, temperature)
        return 0.5 * labels + 0.5 * hard_distillation(of_teacher, teacher)


def make(plan: Plan, network: nn.Module) -> Distill:
    """The objective of a recipe with ``distill.kind``.

    Raises:
        UsvitError: the network has no distillation head and the recipe wants one, the images have no labels, or the
            teacher cannot be had, knows other classes, or cannot take its size.
    """
    config = plan.config
    if config.distill.kind == "token" and not has_distillation_head(network):
        able = ", ".join(name for name in ZOO if name.endswith("_distilled"))
        raise UsvitError(
            f"The model {config.model.name} has no distillation token with a head of its own, which distill.kind "
            f"token trains. Choose one that has ({able}), or distill.kind hard, which needs none."
        )
    if hasattr(network, "set_distilled_training"):
        network.set_distilled_training(config.distill.kind == "token")  # type: ignore[operator]
    student = (plan.inputs.mean, plan.inputs.std)
    teacher = make_teacher(config, student, n_classes=plan.n_classes, classes=plan.classes, device=plan.device)
    return Distill(plan, network, teacher)
