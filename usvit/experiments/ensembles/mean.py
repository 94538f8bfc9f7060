"""The mean of the members' predictions in each fold, with weights from its inner validation images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.config.evaluation import UnitSettings
from usvit.errors import UsvitError
from usvit.evaluation import IMAGES
from usvit.experiments.model_metadata import calibration_of, unit_thresholds
from usvit.metrics.calibration_statistics import LOWEST_PROB
from usvit.metrics.mixture_weights import mixture_log_loss, mixture_weights
from usvit.records import EnsembleFoldRecord

Weighting = Literal["equal", "validation"]
_KEY = ["dataset", "image_id", "part"]


@dataclass(frozen=True)
class FoldOfMeans:
    """One fold of an ensemble."""

    table: pd.DataFrame
    """Predictions of the mean, rows of the splits val and test, in the order of the first member."""
    record: EnsembleFoldRecord
    """Entry of ``ensemble.json``: weights, log loss, temperature and thresholds."""


def mean_of_fold(
    tables: Sequence[pd.DataFrame],
    fold: int,
    *,
    classes: Sequence[str],
    positive: str,
    weighting: Weighting,
    units: UnitSettings = IMAGES,
) -> FoldOfMeans:
    """Average the predictions of one fold, and choose temperature and thresholds of the mean as for a single run.

    Args:
        tables: The predictions of each member in all folds, with the same images.
        fold: Number of the fold.
        classes, positive: The classes, and the positive one.
        weighting: ``equal``, or ``validation`` for the weights with the smallest log loss of the mean on the inner
            validation images of this fold. No test image takes part in it.
        units: the unit whose thresholds are chosen, too, unless it is the image.

    Raises:
        UsvitError: The weights are to be chosen, and the fold has no inner validation images.
    """
    first = tables[0][tables[0]["fold"] == fold]
    columns = [f"prob_{name}" for name in classes]
    prob = np.stack([_aligned(table[table["fold"] == fold], first, columns) for table in tables])  # (M, n, K)
    label = first["label"].map({name: k for k, name in enumerate(classes)}).to_numpy(np.int64)
    val = (first["part"] == "val").to_numpy()
    reached = prob[:, val, label[val]]
    equal = np.full(len(tables), 1 / len(tables))
    if weighting == "equal":
        weights = equal
    elif not val.any():
        raise UsvitError(
            f"--weights validation needs inner validation images, and fold {fold} has none. Use --weights equal."
        )
    else:
        weights = mixture_weights(reached)
    mean = np.tensordot(weights, prob, axes=1)
    logits = np.log(np.maximum(mean, LOWEST_PROB))
    table = first.reset_index(drop=True).drop(columns="view_score", errors="ignore")  # that of one member
    for k, name in enumerate(classes):
        table[f"prob_{name}"], table[f"logit_{name}"] = mean[:, k], logits[:, k]
    calibrated = calibration_of(first[val], logits[val], classes, positive, fold)
    of_units = None if units.of_images else unit_thresholds(table[val], units, positive, calibrated.temperature)
    record = EnsembleFoldRecord(
        fold=fold,
        weights=weights.tolist(),
        n_images=int(val.sum()),
        n_groups=int(first.loc[val, "group_id"].nunique()),
        member_log_loss=[mixture_log_loss(one[None], [1.0]) if val.any() else None for one in reached],
        log_loss=mixture_log_loss(reached, weights) if val.any() else None,
        temperature=calibrated.temperature,
        temperature_reason=calibrated.temperature_reason,
        thresholds=calibrated.thresholds,
        unit_thresholds=of_units,
    )
    return FoldOfMeans(table, record)


def _aligned(table: pd.DataFrame, first: pd.DataFrame, columns: list[str]) -> NDArray[np.float64]:
    """Return the (n, K) probabilities of the rows of ``first``, in its order."""
    found = table.set_index(_KEY)[columns].reindex(pd.MultiIndex.from_frame(first[_KEY]))
    return found.to_numpy(np.float64)
