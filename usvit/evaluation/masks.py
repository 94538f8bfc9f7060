"""Figures of predicted lesion masks, from a table with one row per image."""

import pandas as pd

from usvit.estimate import Estimate
from usvit.metrics.clustered_mean import clustered_mean
from usvit.metrics.intervals import undefined
from usvit.metrics.proportions import clustered_share

OVER_LESIONS = ("dice", "iou", "hd95")
OF_IMAGES = ("missed", "false_alarm")
"""Figures that each image has or has not."""


def mask_values(table: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the values of each figure, of the images for which it is defined.

    Dice and IoU are of images with a lesion; HD95 of those for which a lesion was also predicted; ``missed`` is whether
    none was predicted, of images with a lesion, and ``false_alarm`` whether one was, of images with an empty mask.

    Args:
        table: Columns ``lesion_pixels`` and ``predicted_pixels``, ``dice``, ``iou``, ``hd95`` and ``pixel_accuracy``.
    """
    lesion, predicted = table.lesion_pixels > 0, table.predicted_pixels > 0
    columns = {name: table[name].astype(float) for name in (*OVER_LESIONS, "pixel_accuracy")}
    columns |= {"missed": (~predicted)[lesion].astype(float), "false_alarm": predicted[~lesion].astype(float)}
    return {name: values.dropna() for name, values in columns.items()}


def mask_estimates(table: pd.DataFrame) -> dict[str, Estimate]:
    """Average the figures of the images (``mask_values``), with intervals that count the column ``group_id``."""
    return {
        name: grouped_share(values, table) if name in OF_IMAGES else grouped_mean(values, table)
        for name, values in mask_values(table).items()
    }


def grouped_mean(values: pd.Series, table: pd.DataFrame) -> Estimate:
    """Average values of some rows of a table, with an interval that counts its column ``group_id``."""
    return clustered_mean(values.to_numpy(), table.group_id[values.index].astype(str).to_numpy())


def grouped_share(values: pd.Series, table: pd.DataFrame) -> Estimate:
    """Compute the share of ones among values of some rows of a table, with Wilson's interval over ``group_id``."""
    if values.empty:
        return undefined("there are no such images", 0)
    return clustered_share(values.to_numpy(bool), table.group_id[values.index].astype(str).to_numpy())
