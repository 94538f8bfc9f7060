"""The AUC of readers' ordered categories, and the model's AUC less it: pooled, and within folds as of two runs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from usvit.estimate import Difference
from usvit.evaluation.cross_validation_headline import fold_figures, share_of
from usvit.evaluation.evaluate_predictions import Predictions
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.readers_decisions import ReadImages
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.cross_validation import FoldFigure
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.reader_areas import difference_to_mean, mean_auc, mean_of_fold
from usvit.records import LeftOutReadings, ReaderAreas


def reader_areas(
    found: Predictions, name: str, images: ReadImages, level: np.ndarray, left_out: LeftOutReadings | None
) -> ReaderAreas:
    """Compute the AUCs of one reader, or the mean AUC of several, beside that of the model.

    Args:
        found: the predictions.
        name: of the reader.
        images: the tested images of the first repeat that all of these readers have read.
        level: (R, rows of the predictions table) their categories; -1 without one.
        left_out: tested images without a category.
    """
    rows, k = images.once, images.once.index(found.positive)
    cancer, scores = rows.label == k, images.scores
    return ReaderAreas(
        reader=name,
        n_images=len(rows),
        n_groups=rows.n_groups,
        class_counts={one: int((rows.label == at).sum()) for at, one in enumerate(rows.classes)},
        left_out=left_out,
        auc=mean_auc(cancer, scores, rows.group),
        model=clustered_auc(cancer, rows.prob[:, k], rows.group),
        within_folds=_within_folds(found, level),
        pooled=Difference.of(difference_to_mean(cancer, rows.prob[:, k], scores, rows.group)),
    )


def _within_folds(found: Predictions, level: np.ndarray) -> Difference:
    """Compute the mean difference of AUCs within the folds of all repeats; readers have the same scores in each.

    The training share is that of the difference of two models, of which the reader is one that no training changes; of
    several readers the largest.
    """
    read = (level >= 0).all(axis=0)
    table = found.table.iloc[np.flatnonzero(read)].reset_index(drop=True)
    readers = [_as_predictions(table, found.positive, one[read]) for one in level]
    rows = rows_of(table, "test", every_repeat=True)
    model, *every = (_figures(one, found.positive) for one in (table, *readers))
    mean = [
        [mean_of_fold(figures) for figures in zip(*repeat, strict=True)] for repeat in zip(*every, strict=True)
    ]  # fmt: skip
    n_folds = len(np.unique(rows.fold))
    share = 0.0 if n_folds == 1 else max(share_of([table, one], found.positive).value for one in readers)
    absent = "a class is absent from every fold of some repeat"
    value = difference_within_folds(model, mean, share, absent=absent, n_groups=rows.n_groups)
    return value.replace(n_folds=n_folds, n_repeats=len(np.unique(rows.repeat)), training_share=share)


def _as_predictions(table: pd.DataFrame, positive: str, level: np.ndarray) -> pd.DataFrame:
    """Return a predictions table whose probability of the positive class ascends with the category."""
    prob = (level + 1) / (level.max() + 2)
    names = [str(name) for name in table]
    others = [name for name in names if name.startswith("prob_") and name != f"prob_{positive}"]
    kept = table.drop(columns=[name for name in names if name.startswith("logit_")])
    return kept.assign(**dict.fromkeys(others, (1 - prob) / len(others)), **{f"prob_{positive}": prob})


def _figures(table: pd.DataFrame, positive: str) -> Sequence[Sequence[FoldFigure | None]]:
    rows = rows_of(table.sort_values(["fold", "dataset", "image_id"], kind="stable"), "test", every_repeat=True)
    return fold_figures(rows, rows.index(positive), ("auc",))["auc"]
