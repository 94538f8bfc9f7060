"""Detection of lesions by a map of probabilities: candidates, the lesions that they find, and the FROC curve.

Source: Saha et al. (2022), PI-CAI, and its public code ``picai_eval``: candidates are taken one after the other around
the peaks of the map, and one finds a lesion if their intersection over union is at least 0.1. A free-response curve is
that of Bunch et al. (1978).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, find_objects, label
from scipy.optimize import linear_sum_assignment

from usvit.estimate import Estimate
from usvit.metrics.box_precision import Box, box_of
from usvit.metrics.intervals import undefined
from usvit.metrics.proportions import clustered_share

MOST_CANDIDATES = 5
LEAST_PEAK = 0.1
"""Peak below which a map has no further candidate."""
_SHARE_OF_PEAK = 0.4
"""A candidate reaches down to this share of its peak."""
LEAST_OVERLAP = 0.1
AROUND = np.ones((3, 3), dtype=bool)
"""Pixels that belong together: eight neighbours."""
RATES = (0.125, 0.25, 0.5, 1.0)
"""False positives per image at which a sensitivity is stated."""


@dataclass(frozen=True)
class Detections:
    """What the candidates of one image find."""

    lesions: list[tuple[int, float]]
    """Pixels of each lesion, and the confidence of the candidate that finds it; 0 if none does."""
    false: list[tuple[int, float]]
    """Pixels and confidence of each candidate that finds no lesion."""
    lesion_boxes: list[Box]
    candidate_boxes: list[tuple[Box, float]]
    """Box and confidence of each candidate, the most confident first."""


def detect(probability: NDArray[np.float32], true: NDArray[np.bool_]) -> Detections:
    """Match the candidates of one image with its lesions.

    Lesions are the connected components of the true mask (eight neighbours). A candidate and a lesion are matched one
    to one, so that the sum of their intersections over unions is largest.

    Args:
        probability: (H, W) float32 in [0, 1].
        true: (H, W) bool.

    Example:
        >>> seen = np.zeros((8, 8), np.float32)
        >>> seen[1:4, 1:4], seen[6, 6] = 0.9, 0.3
        >>> found = detect(seen, seen > 0.5)
        >>> found.lesions, found.false
        ([(9, 0.9)], [(1, 0.3)])
        >>> found.candidate_boxes
        [((1, 1, 4, 4), 0.9), ((6, 6, 7, 7), 0.3)]
    """
    lesions, n_lesions = label(true, AROUND)
    sizes = np.bincount(lesions.ravel(), minlength=n_lesions + 1)
    found = candidates(probability)
    overlap = np.zeros((len(found), n_lesions))
    for at, (region, _) in enumerate(found):
        both = np.bincount(lesions[region], minlength=n_lesions + 1)[1:]
        overlap[at] = both / (int(region.sum()) + sizes[1:] - both)
    overlap[overlap < LEAST_OVERLAP] = 0
    pairs = [(at, to) for at, to in zip(*linear_sum_assignment(-overlap), strict=True) if overlap[at, to] > 0]
    finder = {int(to): found[at][1] for at, to in pairs}
    matched = {int(at) for at, _ in pairs}
    return Detections(
        [(int(sizes[to + 1]), finder.get(to, 0.0)) for to in range(n_lesions)],
        [(int(region.sum()), peak) for at, (region, peak) in enumerate(found) if at not in matched],
        [box_of(one) for one in find_objects(lesions)],
        [(box_of(find_objects(region.astype(np.uint8))[0]), peak) for region, peak in found],
    )


def candidates(probability: NDArray[np.float32]) -> list[tuple[NDArray[np.bool_], float]]:
    """Return the region, (H, W) bool, and the peak of each candidate, the highest first.

    The region is the part of the map around the peak that exceeds 0.4 of it; its border of one pixel is left out of
    further candidates.
    """
    found: list[tuple[NDArray[np.bool_], float]] = []
    left = probability.copy()
    while len(found) < MOST_CANDIDATES and (peak := float(left.max())) >= LEAST_PEAK:
        at = np.unravel_index(int(left.argmax()), left.shape)
        parts, _ = label(left > _SHARE_OF_PEAK * peak, AROUND)
        region: NDArray[np.bool_] = parts == parts[at]
        found.append((region, round(peak, 6)))
        left[binary_dilation(region, AROUND)] = 0
    return found


def froc(table: pd.DataFrame, n_images: int) -> pd.DataFrame:
    """Compute the free-response curve.

    Args:
        table: One row per lesion and per false candidate: ``is_lesion`` (bool), ``confidence`` (0 for a missed lesion).
        n_images: Number of images, with and without lesions.

    Returns:
        Columns ``threshold`` (falling), ``false_per_image`` and ``sensitivity``: the lesions and false candidates whose
        confidence is at least the threshold.
    """
    lesions = np.sort(table.confidence[table.is_lesion].to_numpy())
    false = np.sort(table.confidence[~table.is_lesion].to_numpy())
    steps = np.unique(table.confidence[table.confidence > 0])[::-1]
    return pd.DataFrame(
        {
            "threshold": steps,
            "false_per_image": (len(false) - np.searchsorted(false, steps)) / n_images,
            "sensitivity": (len(lesions) - np.searchsorted(lesions, steps)) / max(1, len(lesions)),
        }
    )


def sensitivity_at(table: pd.DataFrame, curve: pd.DataFrame, rate: float) -> Estimate:
    """Return the share of lesions that is found with at most ``rate`` false candidates per image.

    The interval counts groups (``clustered_share``); the threshold is that of these images.

    Args:
        table: As for ``froc``, with ``group_id``.
        curve: Its curve.
        rate: False candidates per image.
    """
    allowed = curve.threshold[curve.false_per_image <= rate]
    return found_above(table, float(allowed.min()) if len(allowed) else np.inf)


def found_above(table: pd.DataFrame, threshold: float) -> Estimate:
    """Return the share of lesions that is found with a confidence of at least ``threshold``."""
    lesions = table[table.is_lesion]
    if lesions.empty:
        return undefined("there are no lesions", 0)
    return clustered_share((lesions.confidence >= threshold).to_numpy(bool), lesions.group_id.astype(str).to_numpy())
