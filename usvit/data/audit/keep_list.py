"""The keep-list: which of several near-duplicates to keep."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

COLUMNS = ["dataset", "image_id", "keep", "reason", "cluster", "sha256"]


def keep_list(
    table: pd.DataFrame, cluster: NDArray[np.int64], n_marks: Sequence[int], area: Sequence[int]
) -> pd.DataFrame:
    """Choose one image of each cluster of near-duplicates, or none if their labels contradict each other.

    The image with the fewest marks is kept; among equals the largest one, then the first one. If near-duplicates have
    different labels, it is unknown which label is right, so all of them are dropped.

    Args:
        table: Table of a manifest with n rows.
        cluster: (n,) cluster of each row. An image that is alone in its cluster is kept.
        n_marks: (n,) number of flags of the pixels (text, calipers and others).
        area: (n,) number of pixels.

    Returns:
        A table with ``COLUMNS`` and one row per image, in the manifest's order. ``keep`` is true or false; ``cluster``
        is ``copies:<12 hex digits>`` of the smallest pixel hash in the cluster, or empty for an image alone.
    """
    labels, hashes = table.label.tolist(), table.sha256.tolist()
    names = (table.image_id + " of " + table.dataset).tolist()
    keep, reason, name = [True] * len(table), [""] * len(table), [""] * len(table)
    for members in pd.Series(range(len(table))).groupby(cluster).agg(list):
        if len(members) == 1:
            continue
        different = sorted({labels[row] for row in members})
        best = min(members, key=lambda row: (n_marks[row], -area[row], row))
        for row in members:
            name[row] = f"copies:{min(hashes[member] for member in members)[:12]}"
            keep[row] = row == best and len(different) == 1
            if len(different) > 1:
                reason[row] = f"its near-duplicates are labelled {' and '.join(different)}"
            else:
                reason[row] = (
                    f"the cleanest of {len(members)} near-duplicates"
                    if row == best
                    else f"near-duplicate of {names[best]}"
                )
    columns = {"keep": ["true" if one else "false" for one in keep], "reason": reason, "cluster": name}
    return table.assign(**columns)[COLUMNS]
