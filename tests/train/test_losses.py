import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from usvit.train.losses import WeightedCrossEntropy, balanced_class_weights


def test_balanced_weights_are_scikit_learns_and_the_busi_numbers_by_hand():
    targets = np.repeat([0, 1, 2], [437, 210, 133])
    weights = balanced_class_weights(targets, 3)
    assert weights == pytest.approx(compute_class_weight("balanced", classes=np.arange(3), y=targets))
    assert weights == pytest.approx([780 / (3 * 437), 780 / (3 * 210), 780 / (3 * 133)])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_whole_batch_is_torchs_weighted_mean(smoothing):
    torch.manual_seed(0)
    logits, targets, weights = torch.randn(16, 3), torch.randint(0, 3, (16,)), np.array([0.5, 1.0, 2.0])
    ours = WeightedCrossEntropy(weights, 3, smoothing)
    got = ours(logits, targets) / ours.batch_weight(targets)
    reference = nn.CrossEntropyLoss(torch.tensor(weights, dtype=torch.float32), label_smoothing=smoothing)
    assert got.item() == pytest.approx(reference(logits, targets).item(), rel=1e-5)


def test_portions_of_a_batch_add_up_to_the_whole():
    torch.manual_seed(1)
    logits, targets = torch.randn(10, 3), torch.randint(0, 3, (10,))
    loss = WeightedCrossEntropy(np.array([0.2, 1.0, 3.0]), 3)
    weight = loss.batch_weight(targets)
    portions = sum(loss(logits[at : at + 4], targets[at : at + 4]) / weight for at in (0, 4, 8))
    assert portions.item() == pytest.approx((loss(logits, targets) / weight).item(), rel=1e-6)


def test_without_weights_it_is_the_plain_mean():
    logits, targets = torch.randn(8, 2), torch.randint(0, 2, (8,))
    loss = WeightedCrossEntropy(None, 2)
    assert (loss(logits, targets) / loss.batch_weight(targets)).item() == pytest.approx(
        nn.functional.cross_entropy(logits, targets).item()
    )
