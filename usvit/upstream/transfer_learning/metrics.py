"""Figures of a transfer, and its tables ``results.csv`` and ``predictions.csv``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t

from usvit.evaluation import predictions_table
from usvit.files import write_csv
from usvit.metrics.intervals import ALPHA
from usvit.metrics.proportions import clustered_share
from usvit.upstream.records.training import TransferEstimate, TransferRow
from usvit.upstream.transfer_learning.splits import TransferSplit

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Row = dict[str, Any]
"""A row of ``results.csv``: column -> value; the columns of its kind (``COLUMNS``)."""

COLUMNS = (
    "how", "cell", "draw", "k", "l2", "neighbours", "part", "n_images",
    "accuracy", "ci95_low", "ci95_high", "mean_class_accuracy", "mean_average_precision",
    "map_ci95_low", "map_ci95_high", "map_conditioned", "map_oracle", "coarse_accuracy", "chosen",
)  # fmt: skip
"""Columns of ``results.csv``; a value that a row does not have is empty."""
MAX_CELLS = 5_000_000
"""Largest table (images x classes) that is written; that of ImageNet would take 2 GB."""


def right(split: TransferSplit, values: NDArray[np.floating]) -> Bools:
    """Return whether the class of the largest value is right, of shape (n,).

    If an image has several labels, each of them is right (ReaL).

    Args:
        split: The images.
        values: Shape (n, K); of equal values, the first class is taken.
    """
    decision = values.argmax(axis=1)
    several = split.source.multi
    if several is None:
        return np.asarray(decision == split.targets)
    return np.array([one in several[row] for one, row in zip(decision, split.rows, strict=True)])


def mean_class_accuracy(targets: NDArray[np.int64], hits: Bools) -> float:
    """Return the accuracy of each class that occurs, averaged over these classes."""
    counts = np.bincount(targets)
    return float((np.bincount(targets, hits.astype(float))[counts > 0] / counts[counts > 0]).mean())


def row(how: str, split: TransferSplit, hits: Bools, *, interval: bool = False, **more: Any) -> Row:
    """Return one row of ``results.csv``."""
    found: Row = {"how": how, "part": split.name, "n_images": len(hits), "accuracy": float(hits.mean())}
    if interval:
        ci95 = accuracy(split, hits).ci95
        found |= {} if ci95 is None else {"ci95_low": ci95[0], "ci95_high": ci95[1]}
    return {**found, "mean_class_accuracy": mean_class_accuracy(split.targets, hits), **more}


def line(name: str, split: TransferSplit, hits: Bools, **more: Any) -> TransferRow:
    """Return one line of the printed table."""
    mean = mean_class_accuracy(split.targets, hits)
    return TransferRow(name=name, accuracy=accuracy(split, hits), mean_class_accuracy=mean, **more)


def accuracy(split: TransferSplit, hits: Bools) -> TransferEstimate:
    """Return the accuracy with its interval, clustered by patient if patients are known."""
    groups = np.arange(len(hits)) if split.groups is None else split.groups
    return TransferEstimate.of(clustered_share(hits, groups))


_DRAWS_COVER = (
    "which training images are drawn; not which test images are, which seed the network was trained with, nor the "
    "choice of the strength"
)
"""What the interval of a mean over draws covers, and what it does not."""


def over_draws(values: Sequence[float], n_groups: int | None) -> TransferEstimate:
    """Return the mean over draws of the training images, with a t interval and the SD of the draws.

    The test images are the same in every draw, so the interval does not cover other patients. The draws share the
    images of one pool, so they vary less than draws from the population.
    """
    method = f"t over {len(values)} draws of the training images"
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None
    found = TransferEstimate(value=mean, ci95=None, method=method, n_groups=n_groups, covers=_DRAWS_COVER, sd=sd)
    if len(values) < 2:
        return found.replace(reason="a variance needs at least two draws")
    if not np.std(values):
        return found.replace(reason="all draws give the same")
    half = float(t.ppf(1 - ALPHA / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return found.replace(ci95=(max(0.0, mean - half), min(1.0, mean + half)))


def results_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the table ``results.csv``, with the rows in the order of the list."""
    table = pd.DataFrame(list(rows)).reindex(columns=list(COLUMNS))
    for name in ("draw", "k", "neighbours", "n_images"):
        table[name] = table[name].astype("Int64")
    table["chosen"] = table["chosen"].map(lambda value: value is True or value == 1).astype(bool)
    return table


def write_predictions(path: Path, split: TransferSplit, logits: NDArray[np.floating]) -> str | None:
    """Write the predictions of the test images, which ``usvit evaluate`` and ``usvit compare`` read.

    Returns:
        None if the table was written, otherwise the reason why not.
    """
    if logits.size > MAX_CELLS:
        return f"{len(logits)} images of {logits.shape[1]} classes: the table would hold {logits.size} probabilities"
    several = split.source.multi
    if several is not None:
        return "the images have several labels each, and a predictions table has one"
    write_csv(path, predictions_table(split.table(), logits, classes=split.source.classes, fold=0, part="test"))
    return None
