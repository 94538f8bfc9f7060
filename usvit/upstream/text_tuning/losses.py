"""The two losses of image-text pairs: one softmax over a batch (CLIP, LiT), or one sigmoid for each pair (SigLIP)."""

import torch
from torch import Tensor
from torch.nn import functional as F


def softmax_loss(similar: Tensor) -> Tensor:
    """Compute the mean of the cross-entropies from images to texts and from texts to images, in nats.

    Args:
        similar: (n, n) float, the scaled cosine of image i and text j; pairs are on the diagonal.

    Source: Radford et al. (2021), CLIP, Figure 3; Zhai et al. (2022), LiT, section 3.
    """
    own = torch.arange(len(similar), device=similar.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


def sigmoid_loss(similar: Tensor) -> Tensor:
    """Compute the binary cross-entropy of all n^2 pairs, summed over texts and averaged over images, in nats.

    Args:
        similar: (n, n) float, the scaled cosine plus the bias; pairs are on the diagonal.

    Source: Zhai et al. (2023), SigLIP, section 3.2 and Algorithm 1.
    """
    sign = 2 * torch.eye(len(similar), dtype=similar.dtype, device=similar.device) - 1
    return -F.logsigmoid(sign * similar).sum() / len(similar)


LOSSES = {"softmax": softmax_loss, "sigmoid": sigmoid_loss}
FIRST_SCALE = {"softmax": 1 / 0.07, "sigmoid": 10.0}
"""Scale of the cosine at the beginning: CLIP, section 2.5; SigLIP, section 3.2."""
FIRST_BIAS = {"softmax": 0.0, "sigmoid": -10.0}
MAX_SCALE = 100.0
"""Largest scale of the cosine (CLIP, section 2.5)."""
