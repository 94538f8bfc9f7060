"""Average precision of boxes around lesions, as COCO defines it, with intervals that count groups.

Source: Lin et al. (2014), Microsoft COCO, and its public code ``pycocotools`` (area ``all``, 101 points of recall).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import cluster_bootstrap
from usvit.metrics.checks import group_codes

Box = tuple[int, int, int, int]
"""Left, upper, right and lower edge in pixels: the lesion covers columns x0 to x1 - 1 and rows y0 to y1 - 1."""
EDGES = ["x0", "y0", "x1", "y1"]
OVERLAPS = np.linspace(0.5, 0.95, 10)
"""Intersections over unions from which a box counts as found; the first is that of ``ap50``."""
_RECALLS = np.linspace(0, 1, 101)


def box_of(region: tuple[slice, slice]) -> Box:
    """Return the box of a region of an array, rows first, as ``scipy.ndimage.find_objects`` gives it."""
    rows, columns = region
    return columns.start, rows.start, columns.stop, rows.stop


def matched(found: NDArray[np.float64], true: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which boxes of one image find a lesion: the best one that is left, in the order of their confidence.

    Args:
        found: (n, 4) boxes, the most confident first.
        true: (m, 4) boxes of lesions.

    Returns:
        (n, 10), for each of ``OVERLAPS``.
    """
    answer = np.zeros((len(found), len(OVERLAPS)), dtype=bool)
    overlap = _overlaps(found, true)
    for at, least in enumerate(OVERLAPS):
        left = overlap.copy()
        for number in range(len(found) if len(true) else 0):
            best = int(left[number].argmax())
            if left[number, best] >= least:
                answer[number, at] = True
                left[:, best] = -1
    return answer


def _overlaps(found: NDArray[np.float64], true: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the intersection over union (n, m) of boxes (n, 4) and (m, 4)."""
    one, other = found[:, None], true[None]
    sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    both = sides.clip(0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (one, other)]
    return np.asarray(both / (areas[0] + areas[1] - both))


def average_precisions(table: pd.DataFrame, groups: Sequence[object]) -> dict[str, Estimate]:
    """Compute the average precision, with a bootstrap over groups.

    Args:
        table: One row per lesion and per candidate: ``dataset``, ``image_id``, ``group_id``, ``is_lesion`` (bool),
            ``x0``, ``y0``, ``x1``, ``y1``, ``confidence`` (of candidates).
        groups: Group of each image, with and without lesions.

    Returns:
        ``ap``, the mean over the ten overlaps of 0.5 to 0.95, and ``ap50``, both in [0, 1].
    """
    names = np.asarray(groups, dtype=str)
    code, n_groups = group_codes(names, len(names))
    table = table.assign(group=table.group_id.astype(str).map(dict(zip(names, code.tolist(), strict=True))))
    n_lesions = np.bincount(table.group[table.is_lesion], minlength=n_groups).astype(float)
    hits = [np.zeros((0, len(OVERLAPS)), dtype=bool)]
    found: list[pd.DataFrame] = []
    for _, image in table.groupby(["dataset", "image_id"], sort=True):
        ranked = image[~image.is_lesion].sort_values("confidence", ascending=False, kind="stable")
        found.append(ranked)
        hits.append(matched(ranked[EDGES].to_numpy(float), image.loc[image.is_lesion, EDGES].to_numpy(float)))
    candidates = pd.concat(found) if found else table
    order = np.argsort(-candidates.confidence.to_numpy(float), kind="stable")
    hit, of_group = np.concatenate(hits)[order], candidates.group.to_numpy(int)[order]

    def figures(drawn: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        rows = np.stack([_precisions(hit, times[of_group], float(times @ n_lesions)) for times in drawn])
        return {"ap": rows.mean(1), "ap50": rows[:, 0]}

    intervals = cluster_bootstrap(figures, n_groups)
    return {name: one.estimate(code, "there are no lesions") for name, one in intervals.items()}


def _precisions(hit: NDArray[np.bool_], times: NDArray[np.float64], n_lesions: float) -> NDArray[np.float64]:
    """Return the average precision at each overlap, (10,); candidates, the most confident first, count ``times``."""
    if n_lesions == 0:
        return np.full(len(OVERLAPS), np.nan)
    right = np.cumsum(hit * times[:, None], axis=0)
    total = np.cumsum(times)[:, None]
    precision = np.divide(right, total, out=np.zeros_like(right), where=total > 0)
    envelope = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    recall = right / n_lesions
    answer = np.zeros(len(OVERLAPS))
    for at in range(len(OVERLAPS)):
        first = np.searchsorted(recall[:, at], _RECALLS)
        answer[at] = envelope[first[first < len(recall)], at].sum() / len(_RECALLS)
    return answer
