"""The losses of Grafit: between an image and its neighbours in a memory, and between views of a batch.

Source: Touvron (2022), PhD thesis, eq. 2.1-2.3 and section 2.2. The thesis does not define its triplet loss: this is
that of Schroff et al. (2015), FaceNet, eq. 2, over all triplets of a batch that violate the margin (Hermans et al.
2017, "batch all").
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

UNSEEN = -2
"""Label of a memory entry whose image was in no batch yet; -1 marks images without a label."""
_NEVER = -1e30  # logarithm of probability zero, with gradient zero instead of NaN


def knn_loss(embedded: Tensor, targets: Tensor, index: Tensor, memory: Tensor, labels: Tensor, sigma: float) -> Tensor:
    """Compute L_knn of each image (eq. 2.2-2.3).

    Args:
        embedded: (B, D), vectors of length one.
        targets: (B,) int64, coarse labels.
        index: (B,) int64, each image's entry of the memory, which is not its neighbour; -1 if it has none.
        memory: (N, D); entries of images seen before have length one.
        labels: (N,) int64; ``UNSEEN`` entries are not neighbours.
        sigma: temperature.

    Returns:
        (B,) losses >= 0; 0 if no neighbour has the image's class.
    """
    scores = embedded @ memory.T / sigma
    others = (labels != UNSEEN)[None] & (torch.arange(len(memory), device=index.device)[None] != index[:, None])
    same = others & (labels[None] == targets[:, None])
    all_others = scores.masked_fill(~others, _NEVER).logsumexp(1)
    right = scores.masked_fill(~same, _NEVER).logsumexp(1)
    return torch.where(same.any(1), all_others - right, torch.zeros_like(right))


def instance_loss(predicted: Tensor, target: Tensor) -> Tensor:
    """Compute L_inst of each image (eq. 2.1).

    Args:
        predicted: (B, T, D), q(g(t_i x)) of any length.
        target: (B, T, D), g_xi(t_j x) of any length.

    Returns:
        (B,) losses in [-1, 1]; T >= 2 views are needed.
    """
    cosines = normalize(predicted, dim=2) @ normalize(target, dim=2).transpose(1, 2)
    n_views = cosines.shape[1]
    same_view = cosines.diagonal(dim1=1, dim2=2).sum(1)
    return -(cosines.sum((1, 2)) - same_view) / (n_views * (n_views - 1))


def triplet_loss(embedded: Tensor, margin: float) -> Tensor:
    """Compute L_Triplet of each image: its views are nearer to one another than to views of other images.

    A triplet is two views a, p of one image and any view n of another image. Its loss is
    max(0, |a - p|^2 - |a - n|^2 + margin). The loss of an image is the mean over its triplets that are not zero.

    Args:
        embedded: (B, T, D), vectors of length one; T >= 2 views and B >= 2 images are needed.
        margin: in squared distances, which are between 0 and 4.

    Returns:
        (B,) losses >= 0.
    """
    n_images, n_views, _ = embedded.shape
    flat = embedded.flatten(0, 1)
    distances = (2 - 2 * flat @ flat.T).unflatten(0, (n_images, n_views)).unflatten(2, (n_images, n_views))
    image, view = (torch.arange(size, device=flat.device) for size in (n_images, n_views))
    losses, counts = embedded.new_zeros(n_images), embedded.new_zeros(n_images)
    others = (image[:, None] != image[None])[:, None, :, None]
    for shift in range(1, n_views):  # each positive in turn, so that a tensor of all triplets is never held
        positive = distances[image[:, None], view[None], image[:, None], (view[None] + shift) % n_views]
        each = (positive[:, :, None, None] - distances + margin).clamp(min=0) * others
        losses = losses + each.sum((1, 2, 3))
        counts = counts + (each > 0).sum((1, 2, 3))
    return losses / counts.clamp(min=1)
