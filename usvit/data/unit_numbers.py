"""Units of training images: their numbers, their labels, and the weight of each image."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.config import Unit
from usvit.data.datasets import UNIT_KEYS
from usvit.errors import UsvitError


def unit_codes(rows: pd.DataFrame, unit: Unit) -> NDArray[np.int64]:
    """Return the (n,) number of the unit of each image, from 0 in the order of the rows.

    An image without an id of the unit is a unit of its own, with a number above all others.

    Args:
        rows: n rows of a manifest or of predictions.
        unit: the unit.

    Raises:
        UsvitError: no image has an id of the unit.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"dataset": "own", "image_id": ["1", "2", "3"], "patient_id": ["a", None, "a"]})
        >>> unit_codes(rows, "patient").tolist()
        [0, 1, 0]
    """
    if unit == "image":
        return np.arange(len(rows), dtype=np.int64)
    keys = list(UNIT_KEYS[unit])
    absent = [name for name in keys if name not in rows or rows[name].isna().all()]
    if absent:
        raise UsvitError(
            f"The unit '{unit}' needs a column {absent[0]}, which no image of this run has. Choose another unit, or "
            "add the column to the table of the images."
        )
    codes = rows.groupby(keys, sort=False).ngroup().fillna(-1).to_numpy().astype(np.int64)
    alone = codes == -1  # without an id
    codes[alone] = codes.max(initial=-1) + 1 + np.arange(alone.sum())
    return codes


def unit_targets(targets: NDArray[np.int64], units: NDArray[np.int64], positive: int) -> NDArray[np.int64]:
    """Return the (n,) class of the unit of each image: ``positive`` if one of its images is, or else the first class.

    Args:
        targets: (n,) class of each image.
        units: (n,) number of its unit, from 0.
        positive: number of the positive class.
    """
    rank = np.where(targets == positive, -1, targets)
    first = np.full(units.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, units, rank)
    return np.where(first == -1, positive, first)[units]


def votes_of(units: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the (n,) weight of each image with which every unit counts the same; their mean is one."""
    inverse = 1 / np.bincount(units)[units]
    return (inverse * len(units) / inverse.sum()).astype(np.float32)
