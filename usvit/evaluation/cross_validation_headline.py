"""The headline of metrics.json: means over folds with valid intervals under cross-validation, and differences.

``usvit.metrics.cross_validation`` has the statistics; this module applies them to predictions tables.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from usvit.estimate import Difference
from usvit.evaluation.headline_words import ONE_MODEL, PredictionOrigin, explained
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.predictions import classes_of
from usvit.figure_table import BY_KEY
from usvit.figure_table import HEADLINE as ROWS
from usvit.metrics.basic import decide
from usvit.metrics.bootstrap import FigureValues
from usvit.metrics.calibration_statistics import log_odds
from usvit.metrics.checks import group_codes
from usvit.metrics.cross_validation import fold_mean, mean_value
from usvit.metrics.figures import function_of
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.fold_figures import FoldFigure, area_figure, function_figure, mean_figure
from usvit.metrics.training_share import training_share
from usvit.records import Headline, TrainingShareRecord

HEADLINE = tuple(row.key for row in ROWS)

_KEY = ["dataset", "image_id", "fold"]


def headline_section(
    table: pd.DataFrame, positive: str, pooled: FigureValues, origin: PredictionOrigin = ONE_MODEL
) -> Headline:
    """Compute the headline figures with their intervals.

    Args:
        table: a predictions table of all repeats. Rows of split val help to estimate the training share.
        positive: one of the classes.
        pooled: the pooled figures; they are the headline of a hold-out, which has only one model.
        origin: what gave the predictions, for the text.

    Returns:
        The figures of ``HEADLINE``, and a text that says what the figures and intervals refer to.
    """
    rows = rows_of(table, "test", every_repeat=True)
    n_folds, n_repeats = len(np.unique(rows.fold)), len(np.unique(rows.repeat))
    if n_folds == 1:
        figures = {name: pooled.figure(name, positive) for name in HEADLINE}
        training = share = None
    else:
        shares = [share_of([table], name) for name in rows.classes]
        k = rows.index(positive)
        share, overall = shares[k], float(np.mean([one.value for one in shares]))
        absent = "no fold of some repeat has images of every class that the figure needs"
        figures = {}
        for name, repeats in fold_figures(rows, k).items():
            own = share.value if BY_KEY[name].of_class else overall
            figures[name] = mean_value(fold_mean(repeats), own, absent=absent, n_groups=rows.n_groups)
        training = share
        if share.reason:
            why = f"{share.reason}; the largest share is assumed, so the intervals are rather too long"
            training = share.model_copy(update={"reason": why})
    return Headline(
        **figures,
        n_repeats=n_repeats,
        n_folds=n_folds,
        training_share=training,
        explains=explained(origin, n_folds, n_repeats, share),
    )


def corrected_difference(a: pd.DataFrame, b: pd.DataFrame, positive: str) -> Difference:
    """Compute the mean difference within folds of two models' AUCs, with the corrected clustered test.

    Args:
        a, b: predictions tables of all repeats, as ``comparison.paired_tables`` returns them. If both have the same
            rows of split val, these help to estimate the training share of the difference.
        positive: one of the classes.

    Returns:
        As ``difference_within_folds``, with ``n_folds``, ``n_repeats`` and ``training_share``. In a
        hold-out, the test takes the two models as given, because the variation between trainings is not known.
    """
    classes = classes_of(a)
    rows = [_sorted(one, classes) for one in (a, b)]
    k = rows[0].index(positive)
    own, others = (fold_figures(one, k, ("auc",))["auc"] for one in rows)
    n_folds = len(np.unique(rows[0].fold))
    share = TrainingShareRecord(value=0.0, n_pairs=0) if n_folds == 1 else share_of([a, b], positive)
    absent = "a class is absent from every fold"
    value = difference_within_folds(own, others, share.value, absent=absent, n_groups=rows[0].n_groups)
    return value.replace(n_folds=n_folds, n_repeats=len(np.unique(rows[0].repeat)), training_share=share.value)


def fold_figures(
    rows: Rows, positive: int, names: Sequence[str] = HEADLINE
) -> dict[str, list[list[FoldFigure | None]]]:
    """Compute each figure of each fold of each repeat, with the contributions of the groups.

    Args:
        rows: test images of all repeats.
        positive: the index of the positive class.
        names: which of ``HEADLINE``.
    """
    code, n_groups = group_codes(rows.group, len(rows))
    found: dict[str, list[list[FoldFigure | None]]] = {name: [] for name in names}
    for repeat in np.unique(rows.repeat):
        folds = [
            figures_of_fold(rows[at], code[at], n_groups, positive, names)
            for at in (rows.fold == fold for fold in np.unique(rows.fold[rows.repeat == repeat]))
        ]
        for name in names:
            found[name].append([fold[name] for fold in folds])
    return found


def share_of(tables: Sequence[pd.DataFrame], name: str) -> TrainingShareRecord:
    """Estimate the training share of the scores of one class, or of the difference of two tables' scores."""
    scored = [_scored(table, name) for table in tables]
    both = scored[0]
    if len(scored) == 2:
        both = both.merge(scored[1][[*_KEY, "score"]], on=_KEY, suffixes=("", "_b"), validate="one_to_one")
    code, n_groups = group_codes(both["group"], len(both))
    scores = [both[column].to_numpy(np.float64) for column in both if str(column).startswith("score")]
    return training_share(both["positive"].to_numpy(bool), scores, code, both["fold"].to_numpy(np.int64), n_groups)


def figures_of_fold(
    rows: Rows, code: np.ndarray, n_groups: int, positive: int, names: Sequence[str]
) -> dict[str, FoldFigure | None]:
    """Compute figures of the images of one fold.

    Args:
        rows: n images of the fold.
        code: (n,) int in 0 ... n_groups - 1, the group of each image.
        n_groups: groups of all folds.
        positive: the index of the positive class.
        names: which of ``HEADLINE``.
    """
    classes = range(len(rows.classes))
    right = (decide(rows.prob) == rows.label).astype(np.float64)
    every = np.ones(len(rows), dtype=bool)

    def area(k: int) -> FoldFigure | None:
        return area_figure(rows.label == k, rows.prob[:, k], code, n_groups)

    def share(values: np.ndarray, looked_at: np.ndarray) -> FoldFigure | None:
        return mean_figure(values, looked_at, code, n_groups)

    def mean(figures: list[FoldFigure | None]) -> FoldFigure | None:
        known = [figure for figure in figures if figure is not None]
        return FoldFigure.mean(known) if len(known) == len(figures) else None

    found: dict[str, FoldFigure | None] = {}
    for name in names:
        match name:
            case "auc":
                found[name] = area(positive)
            case "auc_macro_ovr":
                found[name] = area(positive) if len(classes) == 2 else mean([area(k) for k in classes])
            case "accuracy":
                found[name] = share(right, every)
            case "balanced_accuracy":
                found[name] = mean([share(right, rows.label == k) for k in classes])
            case "sensitivity":
                found[name] = share(right, rows.label == positive)
            case "specificity":
                called = decide(rows.prob) == positive
                found[name] = share((~called).astype(np.float64), rows.label != positive)
            case "brier":
                loss = ((rows.prob - np.eye(len(classes))[rows.label]) ** 2).sum(axis=1) / 2
                found[name] = share(loss, every)
            case _:
                of = positive if BY_KEY[name].of_class else None
                found[name] = function_figure(function_of(name), (rows.label, rows.prob), code, n_groups, of)
    return found


def _scored(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Collect each image with all scores of models that were not trained on it."""
    parts = []
    for part in ("test", "val"):
        rows = rows_of(table, part, every_repeat=True)
        k = rows.index(name)
        own = table.loc[table["part"] == part, _KEY].reset_index(drop=True)
        score = log_odds(rows.scores, k) if len(rows) else np.zeros(0)
        parts.append(own.assign(group=rows.group, positive=rows.label == k, score=score))
    return pd.concat([one for one in parts if len(one)], ignore_index=True).drop_duplicates(_KEY)


def _sorted(table: pd.DataFrame, classes: Sequence[str]) -> Rows:
    return rows_of(
        table.sort_values(["fold", "dataset", "image_id"], kind="stable"), "test", classes, every_repeat=True
    )
