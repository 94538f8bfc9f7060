"""Losses: cross-entropy with class weights, and losses of soft labels (smoothed, or mixed from two images)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F


def balanced_class_weights(
    targets: NDArray[np.int64], n_classes: int, votes: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Compute the weight of each class, N / (K n_c), with which all classes count the same in the loss.

    Args:
        targets: (N,) int64, class index of each training image.
        n_classes: K; every class must occur.
        votes: (N,) float64, weight of each image in the loss; n_c is then the sum over the class, and N over all.

    Returns:
        (K,) float64, with mean 1 over the images, or over their votes.

    Source: King & Zeng 2001; the "balanced" heuristic of scikit-learn. Gheflati & Rivaz 2022
    (III.D) weight the cross-entropy and do not print the weights.
    """
    counts = np.bincount(targets, votes, minlength=n_classes)
    return (len(targets) if votes is None else votes.sum()) / (n_classes * counts)


class WeightedCrossEntropy(nn.Module):
    """Weighted sum of cross-entropies; the caller divides it by the summed weights of the whole batch.

    Args:
        class_weights: (K,) or None for equal weights.
        n_classes: K.
        label_smoothing: share of the target that is spread over all classes, in [0, 1).
    """

    class_weights: torch.Tensor

    def __init__(self, class_weights: NDArray[np.float64] | None, n_classes: int, label_smoothing: float = 0.0):
        super().__init__()
        weights = np.ones(n_classes) if class_weights is None else class_weights
        self.register_buffer("class_weights", torch.tensor(weights, dtype=torch.float32))
        self.label_smoothing = label_smoothing

    def batch_weight(self, targets: torch.Tensor, votes: torch.Tensor | None = None) -> torch.Tensor:
        """Return the sum of the weights of a batch's images, by which the summed losses of the batch are divided."""
        weights = self.class_weights[targets]
        return weights.sum() if votes is None else (weights * votes).sum()

    def forward(self, logits: torch.Tensor, targets: torch.Tensor, votes: torch.Tensor | None = None) -> torch.Tensor:
        """Compute the sum of the weighted losses of a portion of a batch.

        Args:
            logits: (B, K) float; the loss is computed in float32.
            targets: (B,) int64.
            votes: (B,) float, weight of each image beside that of its class; None for equal ones.

        Returns:
            () float32, in nats.
        """
        summed = "sum" if votes is None else "none"
        loss = F.cross_entropy(
            logits.float(), targets, self.class_weights, reduction=summed, label_smoothing=self.label_smoothing
        )
        return loss if votes is None else (loss * votes).sum()


def soft_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Compute the sum over images of - sum_k y_k log softmax(z)_k.

    Args:
        logits: (B, K) float; the loss is computed in float32.
        labels: (B, K) float; rows sum to 1.

    Returns:
        () float32, in nats.

    Source: timm's SoftTargetCrossEntropy (DeiT's loss), which takes the mean.
    """
    return F.cross_entropy(logits.float(), labels, reduction="sum")


def binary_cross_entropy(logits: torch.Tensor, labels: torch.Tensor, threshold: float | None) -> torch.Tensor:
    """Compute the binary cross-entropy, mean over classes, summed over images.

    It is the mean over k of - y_k log s(z_k) - (1 - y_k) log(1 - s(z_k)), with the sigmoid s.

    Args:
        logits: (B, K) float; the loss is computed in float32.
        labels: (B, K) float in [0, 1].
        threshold: labels above it count as 1, others as 0. None keeps the labels.

    Returns:
        () float32, in nats.

    Source: Wightman et al. 2021 (RSB), section 3, "we set the target to be 1 for each class selected by mixup or
    cutmix"; timm's BinaryCrossEntropy(target_threshold) takes the mean of this over images; DeiT III: threshold 0.
    """
    if threshold is not None:
        labels = (labels > threshold).float()
    return F.binary_cross_entropy_with_logits(logits.float(), labels, reduction="none").mean(1).sum()
