"""Agreement of a predicted mask with the true one: a lesion of one image, and the classes of all pixels of many."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, distance_transform_edt

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import cluster_bootstrap
from usvit.metrics.checks import group_codes

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskFigures:
    """Figures of one image. A figure that is not defined for it is None."""

    dice: float | None
    """2 |A and B| / (|A| + |B|) in [0, 1]; None if the true mask is empty."""
    iou: float | None
    """|A and B| / |A or B| in [0, 1]; None if the true mask is empty."""
    pixel_accuracy: float
    """Share of the pixels on which the masks agree, in [0, 1]."""
    hd95: float | None
    """95 % Hausdorff distance in pixels; None if one of the masks is empty."""


def mask_agreement(predicted: Mask, true: Mask) -> MaskFigures:
    """Compare two masks, each (H, W) bool and True in the lesion.

    The 95 % Hausdorff distance is the larger of the two directed ones: the 95th percentile of the distances, between
    pixel centres, from the edge of a mask to the nearest pixel of the other's edge. An edge is what an erosion by four
    neighbours removes, as in MONAI.

    Raises:
        ValueError: The masks have different shapes.

    Source: Taha and Hanbury (2015), BMC Medical Imaging 15:29.

    Example:
        >>> found = mask_agreement(np.array([[1, 1, 0, 0]], bool), np.array([[0, 1, 1, 0]], bool))
        >>> found.dice, found.pixel_accuracy, found.hd95
        (0.5, 0.5, 0.95)
    """
    if predicted.shape != true.shape:
        raise ValueError(f"the predicted mask has the shape {predicted.shape}, and the true one {true.shape}")
    both, total = int((predicted & true).sum()), int(predicted.sum()) + int(true.sum())
    accuracy = float((predicted == true).mean())
    if not true.any():
        return MaskFigures(None, None, accuracy, None)
    hd95 = max(_directed(predicted, true), _directed(true, predicted)) if predicted.any() else None
    return MaskFigures(2 * both / total, both / (total - both), accuracy, hd95)


def _directed(one: Mask, other: Mask) -> float:
    away = distance_transform_edt(~_edge(other))[_edge(one)]
    return float(np.percentile(away, 95))


def _edge(mask: Mask) -> Mask:
    edge: Mask = mask & ~binary_erosion(mask)
    return edge


Counts = NDArray[np.int64]


def class_pixels(predicted: NDArray[np.uint8], true: NDArray[np.uint8], n_classes: int) -> Counts:
    """Count the pixels of each class in one image.

    Args:
        predicted: (H, W) class of each pixel, below K.
        true: (H, W) class of each pixel; pixels of K or more do not count.
        n_classes: K.

    Returns:
        (3, K): pixels of the class in both, in the prediction and in the truth.
    """
    known = true < n_classes
    found, wanted = predicted[known], true[known]
    same = wanted[found == wanted]
    return np.stack([np.bincount(one, minlength=n_classes) for one in (same, found, wanted)]).astype(np.int64)


def class_figures(counts: Counts, group: Sequence[object]) -> tuple[dict[str, Estimate], NDArray[np.float64]]:
    """Compute the figures of semantic segmentation over all pixels of n images.

    Args:
        counts: (n, 3, K) of ``class_pixels``.
        group: (n,) patient, or cluster of near-duplicates, of each image.

    Returns:
        ``miou``, the mean over classes of intersection over union, ``pixel_accuracy`` and ``mean_class_accuracy``, each
        with a bootstrap over groups; classes that no image shows or predicts are left out. And (K, 3): intersection
        over union, accuracy and Dice coefficient of each class, NaN if it does not occur.
    """
    code, n_groups = group_codes(np.asarray(group, dtype=str), len(counts))
    sums = np.zeros((n_groups, *counts.shape[1:]))
    np.add.at(sums, code, counts)

    def figures(drawn: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        both, found, true = np.moveaxis(np.tensordot(drawn, sums, axes=1), 1, 0)
        return {
            "miou": _mean_ratio(both, found + true - both),
            "pixel_accuracy": both.sum(1) / true.sum(1),
            "mean_class_accuracy": _mean_ratio(both, true),
        }

    found = cluster_bootstrap(figures, n_groups)
    estimates = {name: one.estimate(code, "no pixel counts") for name, one in found.items()}
    both, found, true = counts.sum(0).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return estimates, np.stack([both / (found + true - both), both / true, 2 * both / (found + true)], axis=1)


def _mean_ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the last axis of the ratios that are defined."""
    there = below > 0
    ratios = np.divide(above, below, out=np.zeros_like(above), where=there)
    return np.asarray(ratios.sum(-1) / there.sum(-1))
