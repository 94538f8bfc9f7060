"""DINO: self-distillation with no labels.

    P_s(x) = softmax(h_s(f_s(x)) / tau_s),   P_t(x) = softmax((h_t(f_t(x)) - c) / tau_t)      (1)
    L      = mean over pairs (x, x'), x' != x, of - sum_k P_t(x)_k log P_s(x')_k              (3)
             x: global crops of an image; x': its global and local crops
    theta_t <- lambda theta_t + (1 - lambda) theta_s,  lambda: from teacher_decay to 1 by a half cosine
    c       <- m c + (1 - m) mean over the batch of h_t(f_t(x))                               (4)

f is a network without its classifier, h a projection head (``dino_head``), s the student and t the teacher, whose
network the run keeps. The center is the mean over portions and processes, and changes after the step, so that neither
changes the loss. Batch normalization depends on both, as usual.

Source: Caron et al. (2021), Emerging properties in self-supervised vision transformers, ICCV, section 3; and its public
code (main_dino.py), from which these points are: the teacher uses the statistics of its own batches in batch
normalization, and neither dropout nor stochastic depth; the temperature of the teacher rises epoch by epoch; the last
layer gets no gradient in the first epochs, after the gradients were clipped. Different from it: batch normalization
uses the images of one process.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from usvit.data.loading import Batch
from usvit.errors import UsvitError
from usvit.models import Cost, accept_side, blank, forward_at_side, forward_macs, head_parts
from usvit.training import half_cosine, sum_over_processes
from usvit.upstream.config.pretrain import DinoConfig
from usvit.upstream.pretraining.counter_rng import new_weights, view_seeds
from usvit.upstream.pretraining.dino_head import DinoHead
from usvit.upstream.pretraining.task import PretrainingTask, TaskContext


class Branch(nn.Module):
    """The student or the teacher: a network without classifier, and its head.

    Args:
        network: a network of the zoo with no classes. What it has of a classifier is frozen.
        image_size: side of its own input in pixels.
        config: settings of the head.
    """

    def __init__(self, network: nn.Module, image_size: int, config: DinoConfig):
        super().__init__()
        for part in head_parts(network):
            part.requires_grad_(False)
        self.network = network
        training = network.training
        network.eval()
        with torch.no_grad():
            n_features = self._features(torch.zeros(1, 3, image_size, image_size)).shape[1]
        network.train(training)
        self.head = DinoHead(n_features, config)

    def forward(self, *crops: Tensor) -> Tensor:
        """Map normalized images, (B_i, 3, S_i, S_i) for each size i, to (sum of B_i, K) outputs."""
        outputs: Tensor = self.head(torch.cat([self._features(images) for images in crops]))
        return outputs

    def _features(self, images: Tensor) -> Tensor:
        features: Any = forward_at_side(self.network, images)
        if isinstance(features, tuple):  # of the class token and of the distillation token
            features = torch.stack(features).mean(0)
        vectors: Tensor = features.mean((2, 3)) if features.ndim == 4 else features
        return vectors


class _DinoNetwork(nn.Module):
    """Student, teacher and center.

    Args:
        network: a network of the zoo with no classes; it becomes the student's.
        image_size: side of its own input in pixels.
        config: settings of DINO.
    """

    center: Tensor

    def __init__(self, network: nn.Module, image_size: int, config: DinoConfig):
        super().__init__()
        self.student = Branch(network, image_size, config)
        self.teacher = deepcopy(self.student).requires_grad_(False)
        self.register_buffer("center", torch.zeros(config.outputs))

    def forward(self, crops: Tensor, local: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map B global crops (B, 3, S, S) and L local crops (L, 3, s, s) to outputs.

        Returns:
            (B + L, K) of the student, and (B, K) of the teacher for the global crops, without gradient.
        """
        if self.training:
            for part in self.teacher.modules():
                if isinstance(part, _BatchNorm):
                    part.train()  # the rest of a frozen module is in evaluation mode
        with torch.no_grad():
            targets = self.teacher(crops)
        return self.student(crops, *([] if local is None else [local])), targets


class _Dino(PretrainingTask):
    """Cross-entropy between the teacher's and the student's distributions over K outputs, for different crops.

    Args:
        context: configuration, data and device of the training.
        network: a network of the zoo with no classes.

    Raises:
        UsvitError: there is only one view, or the network cannot take the local crops.
    """

    module: _DinoNetwork

    def __init__(self, context: TaskContext, network: nn.Module):
        config = context.config
        _check(context, network)
        self._config, self._views, self._inputs = config.dino, config.views, context.inputs
        self._steps, self._steps_per_epoch = context.steps, context.steps_per_epoch
        with new_weights(config.seed, "dino"):
            self.module = _DinoNetwork(network, config.model.image_size, config.dino)
        self._seen: list[Tensor] = []

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        crops, n_images, n_local = portion["images"], len(portion["images"]), self._views.local_count
        seeds = view_seeds(portion["seeds"], crops.shape[1] + n_local)
        local = None
        if n_local:
            local = self._inputs(portion["local"].flatten(0, 1), seeds[:, crops.shape[1] :].flatten())
        flat = self._inputs(crops.flatten(0, 1), seeds[:, : crops.shape[1]].flatten())
        outputs, targets = module(flat, local)
        outputs, targets = outputs.float(), targets.float()
        self._seen.append(torch.cat([targets.sum(0), targets.new_full((1,), len(targets))]))
        target = self._target(targets, self._epoch(step)).unflatten(0, (n_images, -1))
        split = (outputs[: len(flat)], outputs[len(flat) :])
        student = torch.cat([part.unflatten(0, (n_images, -1)) for part in split if len(part)], dim=1)
        return distillation_loss(student / self._config.student_temperature, target).sum()

    def on_gradients(self, step: int) -> None:
        """Remove the gradients of the last layer in the first epochs, so that the optimizer leaves it out."""
        if self._epoch(step) < self._config.freeze_epochs:
            for parameter in self.module.student.head.last.parameters():
                parameter.grad = None

    @torch.no_grad()
    def on_step_end(self, step: int) -> None:
        """Update the teacher and the center."""
        share = 1 - half_cosine(self._config.teacher_decay, 1.0, step, self._steps)
        module = self.module
        for mean, new in zip(module.teacher.parameters(), module.student.parameters(), strict=True):
            mean.lerp_(new.to(mean), share)
        if self._seen:
            seen = sum_over_processes(torch.stack(self._seen).sum(0))
            self._seen = []
            module.center.lerp_(seen[:-1] / seen[-1], 1 - self._config.center_decay)

    def network(self, module: nn.Module) -> nn.Module:
        kept: nn.Module = module.teacher.network  # type: ignore[union-attr, assignment]
        return kept

    def cost(self, image_size: int) -> Cost:
        """Count the student on all crops and the teacher on the global ones."""
        views, student = self._views, self.module.student
        macs = views.count * forward_macs(student, blank(image_size))
        if views.local_count:
            macs += views.local_count * forward_macs(student, blank(views.local_size or image_size))
        return Cost(macs, views.count * forward_macs(self.module.teacher, blank(image_size)))

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compare teacher and student on the same image, at the teacher's final temperature.

        ``val_entropy`` is that of the teacher's distributions in nats: 0 or log K says that the training collapsed.
        """
        outputs, teacher = module(images)
        target = self._target(teacher.float(), self._config.teacher_warmup_epochs)
        log_prob = (outputs.float() / self._config.student_temperature).log_softmax(1)
        return {"val_loss": -(target * log_prob).sum(), "val_entropy": torch.special.entr(target).sum()}

    def _target(self, outputs: Tensor, epoch: int) -> Tensor:
        """Center and sharpen the teacher's (B, K) outputs (eq. 1)."""
        return ((outputs - self.module.center) / teacher_temperature(self._config, epoch)).softmax(1)

    def _epoch(self, step: int) -> int:
        return int(step / self._steps_per_epoch)


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``)."""
    return _Dino(context, network)


def distillation_loss(student: Tensor, target: Tensor) -> Tensor:
    """Compute eq. 3: the cross-entropy of each global crop's target and each other crop, mean over these pairs.

    Args:
        student: (B, V, K) logits of V crops, the T global ones first.
        target: (B, T, K) probabilities of the global crops.

    Returns:
        (B,) losses in nats; V >= 2 crops are needed.
    """
    pairs = -torch.einsum("btk,bvk->btv", target, student.log_softmax(2))
    same = pairs.diagonal(dim1=1, dim2=2).sum(1)
    return (pairs.sum((1, 2)) - same) / (target.shape[1] * (student.shape[1] - 1))


def teacher_temperature(config: DinoConfig, epoch: int) -> float:
    """Return the teacher's temperature in an epoch: ``teacher_warmup_epochs`` equidistant values, then the final."""
    if epoch >= config.teacher_warmup_epochs:
        return config.teacher_temperature
    share = epoch / max(1, config.teacher_warmup_epochs - 1)
    return config.teacher_temperature_start + share * (config.teacher_temperature - config.teacher_temperature_start)


def _check(context: TaskContext, network: nn.Module) -> None:
    config = context.config
    views = config.views
    if views.count < 2:
        raise UsvitError(
            "DINO compares views of one image, but views.count, the number of global crops, is 1. Set views.count=2."
        )
    if views.local_count and views.local_size not in (None, config.model.image_size):
        try:
            accept_side(network, views.local_size)
        except ValueError as error:
            raise UsvitError(
                f"The model {config.model.name} cannot take local crops of {views.local_size} pixels beside images of "
                f"{config.model.image_size}: {error}. Set views.local_size to null, which resizes local crops to the "
                "model's input, or views.local_count to 0."
            ) from error
