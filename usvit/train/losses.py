"""Cross-entropy for unequal classes."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


def balanced_class_weights(targets: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Weight of each class, N / (K n_c): every class counts the same in the sum of the loss.

    Args:
        targets: (N,) class index of each training image.
        n_classes: K; every class must occur.

    Returns:
        (K,) float64, with mean 1 over the images.

    Source: King & Zeng 2001; the "balanced" heuristic of scikit-learn. Gheflati & Rivaz 2022
    (III.D) weight the cross-entropy and do not print the weights.
    """
    counts = np.bincount(targets, minlength=n_classes)
    return len(targets) / (n_classes * counts)


class WeightedCrossEntropy(nn.Module):
    """Cross-entropy, to be averaged by weight over the whole batch, also where the batch comes in portions.

    Args:
        class_weights: (K,) or None for equal weights.
        label_smoothing: share of the target spread over all classes, in [0, 1).
    """

    class_weights: torch.Tensor

    def __init__(self, class_weights: NDArray[np.float64] | None, n_classes: int, label_smoothing: float = 0.0):
        super().__init__()
        weights = np.ones(n_classes) if class_weights is None else class_weights
        self.register_buffer("class_weights", torch.tensor(weights, dtype=torch.float32))
        self.label_smoothing = label_smoothing

    def batch_weight(self, targets: torch.Tensor) -> torch.Tensor:
        """Sum of the weights of a batch's images: what the sum of ``forward`` over the batch is divided by."""
        return self.class_weights[targets].sum()

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Sum of the weighted losses of a portion of a batch.

        Args:
            logits: (B, K), computed on in float32.
            targets: (B,) int64.
        """
        return nn.functional.cross_entropy(
            logits.float(), targets, self.class_weights, reduction="sum", label_smoothing=self.label_smoothing
        )
