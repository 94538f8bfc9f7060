"""Classification with lesion masks: which images count, and that portions change nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from usvit.models import mask_loss
from usvit.training import MaskedClassificationTask, WeightedCrossEntropy


class Both(nn.Module):
    """Gives fixed logits of classes and masks for each image: its first pixel chooses the row."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.logits = nn.Parameter(torch.randn(4, 3, generator=generator))
        self.masks = nn.Parameter(torch.randn(4, 8, 8, generator=generator))

    def forward(self, images):
        rows = images[:, 0, 0, 0].long()
        return self.logits[rows], self.masks[rows]


@pytest.fixture
def batch():
    images = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 8, 8, 3)
    lesions = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 32, 32)).astype(np.uint8))
    masked = torch.tensor([True, False, True, True])
    return {"images": images, "targets": torch.tensor([0, 1, 2, 1]), "lesions": lesions, "masked": masked}


def task(weight=0.7):
    loss_fn = WeightedCrossEntropy(np.array([0.5, 1.0, 2.0]), 3)
    return MaskedClassificationTask(Both(), loss_fn, lambda images: images.permute(0, 3, 1, 2), weight)


def test_the_loss_of_an_image_is_that_of_its_class_and_of_its_mask_with_the_weight_of_the_class(batch):
    subject = task()
    module, weights = subject.module, torch.tensor([0.5, 1.0, 2.0, 1.0])
    entropy = nn.functional.cross_entropy(module.logits, batch["targets"], reduction="none")
    of_masks = mask_loss(module.masks, batch["lesions"] / 255) * torch.tensor([1.0, 0.0, 1.0, 1.0])
    expected = (weights * (entropy + 0.7 * of_masks)).sum()
    assert subject.loss(module, batch, 0).item() == pytest.approx(expected.item(), rel=1e-5)


def test_portions_add_up_to_the_batch(batch):
    subject = task()
    parts = [{key: value[rows] for key, value in batch.items()} for rows in (slice(0, 1), slice(1, 4))]
    together = sum(subject.loss(subject.module, part, 0) for part in parts)
    assert together.item() == pytest.approx(subject.loss(subject.module, batch, 0).item(), rel=1e-6)


def test_an_image_without_a_mask_gives_its_decoder_no_gradient(batch):
    subject = task()
    subject.loss(subject.module, batch, 0).backward()
    gradient = subject.module.masks.grad.abs().sum((1, 2))
    assert gradient[1] == 0
    assert (gradient[[0, 2, 3]] > 0).all()
