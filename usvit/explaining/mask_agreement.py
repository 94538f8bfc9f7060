"""Agreement of saliency maps with lesion masks, with intervals over groups.

Agreement with a mask shows that a network looks where a radiologist drew, not that it is right, or why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import N_RESAMPLES, cluster_bootstrap
from usvit.metrics.checks import group_codes
from usvit.metrics.intervals import undefined
from usvit.metrics.proportions import clustered_share
from usvit.records.explain import AgainstMasks

Map = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FLAT = 1e-6
"""A map whose values differ by less than this share of the largest is blank: the differences are rounding errors."""


def is_blank(saliency: Map) -> bool:
    """Return whether a map, (H, W), is constant, so that it points nowhere."""
    return float(np.ptp(saliency)) <= _FLAT * float(np.abs(saliency).max())


def pointing(saliency: Map, mask: Mask) -> float | None:
    """Play the pointing game: 1 if the maximum of the map lies in the mask, else 0.

    If several pixels have the maximum, the result is the share of them in the mask. The original game has a tolerance
    of 15 pixels; this one has none.

    Args:
        saliency: (H, W).
        mask: (H, W), the lesion.

    Returns:
        A value in [0, 1]; None for a blank map.

    Source: Zhang et al. (2016), arXiv:1608.00507, section 4.2.
    """
    if is_blank(saliency):
        return None
    return float(mask[saliency == saliency.max()].mean())


def share_in_mask(saliency: Map, mask: Mask) -> float | None:
    """Return the share of a map's sum that lies in the mask; values below 0 count as 0.

    Args:
        saliency: (H, W).
        mask: (H, W), the lesion.

    Returns:
        A value in [0, 1]; None for a blank map, or one without values above 0.

    Source: Wang et al. (2020), Score-CAM, arXiv:1910.01279, section 4.3 ("energy-based pointing game").
    """
    positive = np.maximum(saliency, 0)
    if is_blank(saliency) or not positive.sum() > 0:
        return None
    return float(positive[mask].sum() / positive.sum())


def centre_pointing(mask: Mask) -> float:
    """Play the pointing game with a map that always points at the centre of the image, where most lesions are."""
    middle = np.zeros(mask.shape)
    height, width = mask.shape
    middle[(height - 1) // 2 : height // 2 + 1, (width - 1) // 2 : width // 2 + 1] = 1  # four pixels of an even side
    return float(mask[middle == 1].mean())


@dataclass(frozen=True)
class MaskScore:
    """Agreement of one map with the mask of its image."""

    group_id: str
    area: float
    """Share of the image that the mask covers, the chance level of both scores."""
    centre: float
    pointing: float | None
    share: float | None


def score(saliency: Map, mask: Mask, group_id: str) -> MaskScore:
    """Compute both scores of one map, with the scores of an uninformed map."""
    return MaskScore(
        group_id, float(mask.mean()), centre_pointing(mask), pointing(saliency, mask), share_in_mask(saliency, mask)
    )


def summary(scores: Sequence[MaskScore]) -> AgainstMasks | None:
    """Return means over images with intervals over groups, for explain.json; None if no image has a mask."""
    if not scores:
        return None
    shown = [one for one in scores if one.pointing is not None and one.share is not None]
    group = np.array([one.group_id for one in shown])
    names = ("pointing", "share", "area", "centre")
    if shown:
        means = {name: clustered_mean(np.array([getattr(one, name) for one in shown]), group) for name in names}
    else:
        means = dict.fromkeys(names, undefined("every map is blank", 0))
    return AgainstMasks(
        n_images=len(shown), n_groups=len(set(group.tolist())), n_blank=len(scores) - len(shown), **means
    )


def clustered_mean(values: NDArray[np.float64], group: NDArray[Any], *, n_resamples: int = N_RESAMPLES) -> Estimate:
    """Return the mean over images with an interval over groups; for values of 0 and 1, the interval of a proportion.

    Args:
        values: (n,) finite, n >= 1.
        group: (n,) patient, or cluster of near-duplicates, of each image.
        n_resamples: number of bootstrap resamples.
    """
    if np.isin(values, (0, 1)).all():
        return clustered_share(values == 1, group)
    code, n_groups = group_codes(group, len(values))
    size, total = np.bincount(code).astype(np.float64), np.bincount(code, weights=values)
    one = cluster_bootstrap(
        lambda counts: {"mean": counts @ total / (counts @ size)}, n_groups, n_resamples=n_resamples
    )["mean"]
    return one.estimate(code, "", n_resamples)  # there is a value, since n >= 1
