"""Does a map look at the lesion? Maps scored against masks, with groups as the unit.

Agreement with a mask says that a network looks where a radiologist drew, not that it is right, nor why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usvit.metrics.bootstrap import N_RESAMPLES, cluster_bootstrap
from usvit.metrics.checks import group_codes
from usvit.metrics.intervals import with_interval
from usvit.metrics.points import Value
from usvit.metrics.proportions import clustered_share

Map = NDArray[np.float64]
Mask = NDArray[np.bool_]

FLAT = 1e-6
"""A map whose values differ by less than this share of the largest is blank: what is left is rounding."""


def is_blank(saliency: Map) -> bool:
    """Whether a map, (H, W), is the same everywhere, so that it points nowhere."""
    return float(np.ptp(saliency)) <= FLAT * float(np.abs(saliency).max())


def pointing(saliency: Map, mask: Mask) -> float | None:
    """The pointing game: 1 where the map's maximum lies in the mask, 0 where it does not.

    Where several pixels are the maximum, the share of them that lie in the mask. The original game forgives 15 pixels;
    this one forgives none.

    Args:
        saliency: (H, W).
        mask: (H, W), the lesion.

    Returns:
        In [0, 1]; None for a blank map.

    Source: Zhang et al. (2016), arXiv:1608.00507, section 4.2.
    """
    if is_blank(saliency):
        return None
    return float(mask[saliency == saliency.max()].mean())


def share_in_mask(saliency: Map, mask: Mask) -> float | None:
    """The share of a map's sum that lies in the mask; what is below 0 counts as 0.

    Args:
        saliency: (H, W).
        mask: (H, W), the lesion.

    Returns:
        In [0, 1]; None for a blank map, or one without anything above 0.

    Source: Wang et al. (2020), Score-CAM, arXiv:1910.01279, section 4.3 ("energy-based pointing game").
    """
    positive = np.maximum(saliency, 0)
    if is_blank(saliency) or not positive.sum() > 0:
        return None
    return float(positive[mask].sum() / positive.sum())


def centre_pointing(mask: Mask) -> float:
    """The pointing game of a map that always points at the middle of the image: lesions are seldom elsewhere."""
    middle = np.zeros(mask.shape)
    height, width = mask.shape
    middle[(height - 1) // 2 : height // 2 + 1, (width - 1) // 2 : width // 2 + 1] = 1  # four pixels of an even side
    return float(mask[middle == 1].mean())


@dataclass(frozen=True)
class MaskScore:
    """How one map agrees with the mask of its image."""

    group_id: str
    area: float
    """Share of the image that the mask covers: the chance of either score."""
    centre: float
    pointing: float | None
    share: float | None


def score(saliency: Map, mask: Mask, group_id: str) -> MaskScore:
    """Both scores of one map, with what a map without knowledge would have."""
    return MaskScore(
        group_id, float(mask.mean()), centre_pointing(mask), pointing(saliency, mask), share_in_mask(saliency, mask)
    )


def summary(scores: Sequence[MaskScore]) -> dict[str, Any] | None:
    """Means over images, with intervals over groups, as explain.json has them; None where no image has a mask."""
    if not scores:
        return None
    shown = [one for one in scores if one.pointing is not None and one.share is not None]
    group = np.array([one.group_id for one in shown])
    counts = {
        "n_images": len(shown),
        "n_groups": len(set(group.tolist())),
        "n_blank": len(scores) - len(shown),
    }
    if not shown:
        nothing = {"value": None, "ci95": None, "reason": "every map is blank", "n_groups": 0}
        return counts | {key: dict(nothing) for key in ("pointing", "share", "area", "centre")}
    columns = {key: np.array([getattr(one, key) for one in shown]) for key in ("pointing", "share", "area", "centre")}
    return counts | {key: clustered_mean(values, group) for key, values in columns.items()}


def clustered_mean(values: NDArray[np.float64], group: NDArray[Any], *, n_resamples: int = N_RESAMPLES) -> Value:
    """The mean over images with an interval from whole groups; of hits alone, the interval of a share.

    Args:
        values: (n,) finite, n >= 1.
        group: (n,) the patient, or duplicate cluster, of each image.
        n_resamples: of the bootstrap.
    """
    if np.isin(values, (0, 1)).all():
        return clustered_share(values == 1, group, n_resamples=n_resamples)
    code, n_groups = group_codes(group, len(values))
    size, total = np.bincount(code).astype(np.float64), np.bincount(code, weights=values)
    one = cluster_bootstrap(
        lambda counts: {"mean": counts @ total / (counts @ size)}, n_groups, n_resamples=n_resamples
    )["mean"]
    method = f"cluster bootstrap, {one.method}, {n_resamples} resamples"
    return with_interval(one.value, one.ci95, method=method, n_groups=n_groups, reason=one.reason)
