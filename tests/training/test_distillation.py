"""What a teacher sees, and the loss of a fine-tuning with one: the terms of the thesis, weighted by class."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from usvit.config.sections import DistillConfig
from usvit.training import DistillationTask, Teacher, WeightedCrossEntropy

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
LABELS = [0, 2, 1, 2]
CLASS_WEIGHTS = [0.5, 2.0, 1.0]


class Answers(nn.Module):
    """Two heads with given logits, as a network with a distillation token in training."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = logits

    def forward(self, images):
        return self.logits if len(self.logits) > 1 else self.logits[0]


def logits(seed):
    return 2 * torch.randn(len(LABELS), 3, generator=torch.Generator().manual_seed(seed))


def softmax(row, temperature=1.0):
    terms = [math.exp(value / temperature) for value in row]
    return [term / sum(terms) for term in terms]


@pytest.mark.parametrize("votes", [None, [1.0, 0.25, 0.5, 3.0]])
@pytest.mark.parametrize("kind", ["soft", "hard", "token"])
def test_each_image_counts_as_its_class_in_both_terms(kind, votes):
    of_class, of_token, teacher = logits(0), logits(1), logits(2)
    student = Answers(of_class, of_token) if kind == "token" else Answers(of_class)
    distill = DistillConfig(kind=kind, weights="run", temperature=2.0, balance=0.3)
    loss_fn = WeightedCrossEntropy(np.array(CLASS_WEIGHTS), 3)
    task = DistillationTask(student, loss_fn, lambda images: images, lambda images: teacher, distill)
    batch = {"images": torch.zeros(len(LABELS), 3, 8, 8), "targets": torch.tensor(LABELS)}
    batch |= {} if votes is None else {"votes": torch.tensor(votes)}
    answers = (of_token if kind == "token" else of_class).tolist()
    total = 0.0
    for k, (y, z, z_d, z_t) in enumerate(zip(LABELS, of_class.tolist(), answers, teacher.tolist(), strict=True)):
        label = -math.log(softmax(z)[y])
        if kind == "soft":
            p_s, p_t = softmax(z_d, 2.0), softmax(z_t, 2.0)
            term = 0.7 * label + 0.3 * 4 * sum(t * math.log(t / s) for s, t in zip(p_s, p_t, strict=True))
        else:
            term = 0.5 * label - 0.5 * math.log(softmax(z_d)[z_t.index(max(z_t))])
        total += CLASS_WEIGHTS[y] * (1.0 if votes is None else votes[k]) * term
    assert task.loss(student, batch, 0).item() == pytest.approx(total, rel=1e-5)


def test_the_teacher_gets_its_own_statistics_and_size():
    class Mean(nn.Module):
        def forward(self, images):
            self.size = images.shape[-1]
            return images.mean((2, 3))

    model = Mean()
    teacher = Teacher(model, image_size=48, mean=IMAGENET[0], std=IMAGENET[1], student=HALF, device=torch.device("cpu"))
    grey = torch.full((2, 3, 32, 32), (0.25 - 0.5) / 0.5)  # a picture of 0.25 everywhere
    expected = (0.25 - torch.tensor(IMAGENET[0])) / torch.tensor(IMAGENET[1])
    assert torch.allclose(teacher(grey), expected.expand(2, 3), atol=1e-5)
    assert model.size == 48


def test_a_smaller_teacher_sees_what_pillow_s_bicubic_shows():
    """Oracle: Pillow's resize, which antialiases."""
    pixels = np.random.default_rng(0).integers(60, 200, (32, 32, 3), dtype=np.uint8)
    shown = np.asarray(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BICUBIC)).astype(float) / 255
    seen = {}

    class Look(nn.Module):
        def forward(self, images):
            seen["images"] = images
            return images.mean((2, 3))

    teacher = Teacher(Look(), image_size=16, mean=(0.0,) * 3, std=(1.0,) * 3, student=HALF, device=torch.device("cpu"))
    teacher((torch.from_numpy(pixels)[None].permute(0, 3, 1, 2) / 255 - 0.5) / 0.5)
    assert np.abs(seen["images"][0].permute(1, 2, 0).numpy() - shown).max() < 1.5 / 255
