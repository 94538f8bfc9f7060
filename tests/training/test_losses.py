"""Losses against sums written out, and against those of PyTorch, scikit-learn and timm."""

import math

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from timm.data.mixup import mixup_target
from timm.loss import BinaryCrossEntropy, SoftTargetCrossEntropy
from torch import nn

from usvit.training.losses import (
    WeightedCrossEntropy,
    balanced_class_weights,
    binary_cross_entropy,
    soft_cross_entropy,
)

LOGITS = torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.0, 0.1, -4.0, 2.0], [30.0, -30.0, 0.0, 1.0]])
LABELS = mixup_target(torch.tensor([0, 3, 1]), 4, 0.7, 0.1)


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


def written_out_cross_entropy(logits, labels):
    total = 0.0
    for z, y in zip(logits.tolist(), labels.tolist(), strict=True):
        norm = math.log(sum(math.exp(value) for value in z))
        total -= sum(share * (value - norm) for share, value in zip(y, z, strict=True))
    return total


def written_out_binary(logits, labels, threshold):
    total = 0.0
    for z, y in zip(logits.tolist(), labels.tolist(), strict=True):
        for value, share in zip(z, y, strict=True):
            label = share if threshold is None else float(share > threshold)
            total += (label * math.log1p(math.exp(-value)) + (1 - label) * math.log1p(math.exp(value))) / len(z)
    return total


def test_soft_cross_entropy_is_the_sum_written_out():
    loss = soft_cross_entropy(LOGITS, LABELS)
    assert loss.item() == pytest.approx(written_out_cross_entropy(LOGITS, LABELS), rel=1e-6)
    assert (loss / 3).item() == pytest.approx(SoftTargetCrossEntropy()(LOGITS, LABELS).item(), rel=1e-6)


@pytest.mark.parametrize("threshold", [None, 0.0, 0.2])
def test_binary_cross_entropy_is_the_sum_written_out(threshold):
    labels = mixup_target(torch.tensor([0, 3, 1]), 4, 0.7) if threshold == 0.0 else LABELS
    loss = binary_cross_entropy(LOGITS, labels, threshold)
    assert loss.item() == pytest.approx(written_out_binary(LOGITS, labels, threshold), rel=1e-6)
    timm = BinaryCrossEntropy(smoothing=0.0, target_threshold=threshold)
    assert (loss / 3).item() == pytest.approx(timm(LOGITS, labels).item(), rel=1e-6)


def test_deit_three_counts_both_mixed_classes_as_present():
    """engine.py: targets.gt(0.0), then torch's BCEWithLogitsLoss."""
    labels = mixup_target(torch.tensor([0, 3]), 4, 0.999)
    expected = torch.nn.BCEWithLogitsLoss()(LOGITS[:2], torch.tensor([[1.0, 0, 0, 1]] * 2))
    assert torch.allclose(binary_cross_entropy(LOGITS[:2], labels, 0.0) / 2, expected)


@pytest.mark.parametrize("loss", [soft_cross_entropy, lambda z, y: binary_cross_entropy(z, y, 0.2)])
def test_portions_add_up_and_half_precision_is_summed_in_full(loss):
    whole = loss(LOGITS, LABELS)
    assert torch.allclose(whole, loss(LOGITS[:1], LABELS[:1]) + loss(LOGITS[1:], LABELS[1:]))
    low = LOGITS.bfloat16()
    assert loss(low, LABELS).dtype == torch.float32
    assert torch.equal(loss(low, LABELS), loss(low.float(), LABELS))
