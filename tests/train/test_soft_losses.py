"""Losses of shared labels against sums written out, and against timm's."""

import math

import pytest
import torch
from timm.data.mixup import mixup_target
from timm.loss import BinaryCrossEntropy, SoftTargetCrossEntropy

from usvit.train.soft_losses import binary_cross_entropy, soft_cross_entropy

LOGITS = torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.0, 0.1, -4.0, 2.0], [30.0, -30.0, 0.0, 1.0]])
LABELS = mixup_target(torch.tensor([0, 3, 1]), 4, 0.7, 0.1)


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
