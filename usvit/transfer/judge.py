"""From a network's values for the test images to numbers, and to the table that everything else can be made from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t

from usvit.data.sources.source import Source
from usvit.files import write_csv
from usvit.metrics.intervals import ALPHA
from usvit.metrics.points import Value
from usvit.metrics.predictions import predictions_table
from usvit.metrics.proportions import clustered_share
from usvit.transfer.parts import Part

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

COLUMNS = (
    "how", "cell", "draw", "k", "l2", "part", "n_images",
    "accuracy", "ci95_low", "ci95_high", "mean_class_accuracy", "mean_average_precision",
    "map_ci95_low", "map_ci95_high", "map_conditioned", "map_oracle", "coarse_accuracy", "chosen",
)  # fmt: skip
"""Of ``results.csv``; what a row does not have is empty."""
MAX_CELLS = 5_000_000
"""A table of more numbers (images x classes) is not written: ImageNet's would take 2 GB."""


def right(part: Part, values: NDArray[np.floating]) -> Bools:
    """(n,) whether the class of the largest value is right; where an image has several labels, any of them is (ReaL).

    Args:
        part: the images.
        values: (n, K); of equal ones, the first class counts.
    """
    decision = values.argmax(axis=1)
    several = _several(part.source)
    if several is None:
        return np.asarray(decision == part.targets)
    return np.array([one in several[row] for one, row in zip(decision, part.rows, strict=True)])


def mean_class_accuracy(targets: NDArray[np.int64], hits: Bools) -> float:
    """Mean over the classes that occur of the share of their images that are right."""
    counts = np.bincount(targets)
    return float((np.bincount(targets, hits.astype(float))[counts > 0] / counts[counts > 0]).mean())


def row(how: str, part: Part, hits: Bools, *, interval: bool = False, **more: Any) -> dict[str, Any]:
    """One row of ``results.csv``."""
    found: dict[str, Any] = {"how": how, "part": part.name, "n_images": len(hits), "accuracy": float(hits.mean())}
    if interval:
        ci95 = accuracy(part, hits)["ci95"]
        found |= {} if ci95 is None else {"ci95_low": ci95[0], "ci95_high": ci95[1]}
    return {**found, "mean_class_accuracy": mean_class_accuracy(part.targets, hits), **more}


def accuracy(part: Part, hits: Bools) -> Value:
    """The share of right ones with its interval; patients are respected where they are known."""
    groups = np.arange(len(hits)) if part.groups is None else part.groups
    return clustered_share(hits, groups)


DRAWS_COVER = (
    "which training images are drawn; not which test images are, which seed the network was trained with, nor the "
    "choice of the strength"
)
"""What the interval of a mean over draws speaks of, and what it does not."""


def over_draws(values: Sequence[float], n_groups: int) -> Value:
    """Mean over draws of the training images, with a t interval, the draws' SD and what the interval covers.

    The test images are the same in every draw, so that the interval says nothing of other patients; and the draws share
    images of one pool, so that they are more alike than draws from everywhere.
    """
    method = f"t over {len(values)} draws of the training images"
    found: Value = {"value": float(np.mean(values)), "ci95": None, "method": method, "n_groups": n_groups}
    found |= {"covers": DRAWS_COVER, "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None}
    if len(values) < 2:
        return {**found, "reason": "a spread needs at least two draws"}
    if not np.std(values):
        return {**found, "reason": "all draws give the same"}
    half = float(t.ppf(1 - ALPHA / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return {**found, "ci95": [max(0.0, found["value"] - half), min(1.0, found["value"] + half)]}


def results_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """``results.csv``: rows in the order in which they were found."""
    table = pd.DataFrame(list(rows)).reindex(columns=list(COLUMNS))
    for name in ("draw", "k", "n_images"):
        table[name] = table[name].astype("Int64")
    table["chosen"] = table["chosen"].map(lambda value: value is True or value == 1).astype(bool)
    return table


def write_predictions(path: Path, part: Part, logits: NDArray[np.floating]) -> str | None:
    """Write the predictions table of the test images; ``usvit evaluate`` and ``usvit compare`` read it.

    Returns:
        Why there is none, or None: it was written.
    """
    if logits.size > MAX_CELLS:
        return f"{len(logits)} images of {logits.shape[1]} classes: the table would hold {logits.size} probabilities"
    several = _several(part.source)
    if several is not None:
        return "the images have several labels each, and a predictions table has one"
    write_csv(path, predictions_table(part.table(), logits, classes=part.source.classes, fold=0, part="test"))
    return None


def _several(source: Source) -> Sequence[Sequence[int]] | None:
    return getattr(source, "multi", None)
