"""Agreement of a predicted lesion mask with the true one, for one image."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, distance_transform_edt

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
