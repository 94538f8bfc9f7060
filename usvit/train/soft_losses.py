"""Losses of labels that are shares: smoothed, or mixed of two images."""

import torch
from torch.nn import functional as F


def soft_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over images of - sum_k y_k log softmax(z)_k.

    Args:
        logits: (B, K), computed on in float32.
        labels: (B, K) float, rows that sum to 1.

    Returns:
        () the sum, in nats.

    Source: as timm's SoftTargetCrossEntropy, which takes the mean (DeiT's loss).
    """
    return F.cross_entropy(logits.float(), labels, reduction="sum")


def binary_cross_entropy(logits: torch.Tensor, labels: torch.Tensor, threshold: float | None) -> torch.Tensor:
    """Sum over images of the mean over classes of - y_k log s(z_k) - (1 - y_k) log(1 - s(z_k)), s the sigmoid.

    Args:
        logits: (B, K), computed on in float32.
        labels: (B, K) float in [0, 1].
        threshold: labels above it count as 1, others as 0; None: they stay as they are.

    Returns:
        () the sum, in nats.

    Source: Wightman et al. 2021 (RSB), section 3, "we set the target to be 1 for each class selected by mixup or
    cutmix"; timm's BinaryCrossEntropy(target_threshold) takes the mean of this over images; DeiT III: threshold 0.
    """
    if threshold is not None:
        labels = (labels > threshold).float()
    return F.binary_cross_entropy_with_logits(logits.float(), labels, reduction="none").mean(1).sum()
