"""Figures of a report: discrimination between classes, and the course of the training.

On the page, figures contain no text from the user: names are in the legends of the page, which wrap and escape them.
A figure that is written as a file has the same legend inside.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve

from usvit.documents import DASHES, N_SERIES, LegendEntry, Pens, Plot
from usvit.estimate import Estimate
from usvit.metrics.basic import roc
from usvit.reports.roc_band import roc_band

SQUARE = (3.7, 3.6)
_TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)


def roc_with_band(test: pd.DataFrame, positive: str, auc: str, mean_auc: str | None) -> Plot:
    """Plot the ROC curve of the positive class against the rest: pooled with its band, and a thin line for each fold.

    Args:
        test: the test rows of a predictions table.
        positive: one of its classes.
        auc: the pooled AUC as text, for the legend.
        mean_auc: the mean AUC of the folds as text; None for a hold-out, which has no thin lines.
    """
    truth, score = (test["label"] == positive).to_numpy(), test[f"prob_{positive}"].to_numpy()
    band = roc_band(truth, score, test["group_id"].to_numpy(object))
    folds = [rows for _, rows in test.groupby("fold")] if mean_auc is not None else []

    def draw(pens: Pens) -> Figure:
        figure, axes = _roc_axes(pens)
        for rows in folds:
            curve = roc((rows["label"] == positive).to_numpy(), rows[f"prob_{positive}"].to_numpy())
            if curve:
                axes.plot(*curve, color=pens.muted, linewidth=0.7, alpha=0.8)
        if band:
            axes.fill_between(*band, color=pens.series[0], alpha=0.2, linewidth=0)
        curve = roc(truth, score)
        if curve:
            axes.plot(*curve, color=pens.series[0], linewidth=1.8)
        return figure

    legend = [LegendEntry(f"{'pooled, ' if folds else ''}AUC {auc}", "series-0", 1.8)]
    if band:
        legend.append(LegendEntry("95 % band, pointwise, from resampling whole groups", "series-0", kind="band"))
    if folds:
        legend.append(LegendEntry(f"one fold each, mean AUC {mean_auc}", "muted", 0.9))
    of_folds = f", with a thin curve for each of {len(folds)} folds" if folds else ""
    title = f"ROC curve of the positive class{' with its 95 % band' if band else ''}{of_folds}; AUC {auc}"
    return Plot("roc", title, draw, tuple(legend))


def roc_by_class(test: pd.DataFrame, classes: Sequence[str], aucs: Sequence[str]) -> Plot:
    """Plot the ROC curve of each class against the rest, over all rows of ``test``; class k is drawn as series k.

    A class without images, or with all of them, has no curve.
    """

    def draw(pens: Pens) -> Figure:
        figure, axes = _roc_axes(pens)
        for k, name in enumerate(classes):
            curve = roc((test["label"] == name).to_numpy(), test[f"prob_{name}"].to_numpy())
            if curve:
                (line,) = axes.plot(*curve, color=pens.series[k % N_SERIES], linewidth=1.6)
                if dashes := DASHES[k % N_SERIES]:
                    line.set_dashes(dashes)
        return figure

    legend = tuple(
        LegendEntry(f"{name}, AUC {aucs[k]}", f"series-{k % N_SERIES}", dash=DASHES[k % N_SERIES])
        for k, name in enumerate(classes)
    )
    return Plot("roc-classes", f"ROC curves, one for each of {len(classes)} classes", draw, legend)


def precision_recall(test: pd.DataFrame, positive: str, average: str, *, by_fold: bool) -> Plot:
    """Plot precision over recall of the positive class; the dashed line is a classifier without skill."""
    truth, score = (test["label"] == positive).to_numpy(), test[f"prob_{positive}"].to_numpy()
    sets = [rows for _, rows in test.groupby("fold")] if by_fold else []

    def curve(truth: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        precision, recall, _ = precision_recall_curve(truth, score)
        return recall, precision

    def draw(pens: Pens) -> Figure:
        figure, axes = square("Recall (sensitivity)", "Precision (PPV)")
        if truth.any():
            axes.axhline(truth.mean(), color=pens.muted, linewidth=0.7, dashes=(2, 3))
            for rows in sets:
                of_class = (rows["label"] == positive).to_numpy()
                if of_class.any():
                    line = curve(of_class, rows[f"prob_{positive}"].to_numpy())
                    axes.step(*line, where="post", color=pens.muted, linewidth=0.7, alpha=0.8)
            axes.step(*curve(truth, score), where="post", color=pens.series[0], linewidth=1.8)
        return figure

    legend = [LegendEntry(f"{'pooled, ' if sets else ''}average precision {average}", "series-0", 1.8)]
    if sets:
        legend.append(LegendEntry("one fold each", "muted", 0.9))
    legend.append(LegendEntry(f"share of the class, {truth.mean():.3f}", "muted", 0.9, (2, 3)))
    title = f"Precision over recall of the positive class; average precision {average}"
    return Plot("precision-recall", title, draw, tuple(legend))


def fold_strip(rows: Sequence[tuple[str, Estimate, list[float], float | None]]) -> Plot:
    """Plot the value of each fold, their mean, and the pooled value with its interval, on one axis for each measure.

    Args:
        rows: (name of the measure, the pooled value, the folds' known values, their mean).
    """

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(4.4, 0.6 + 0.38 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        lowest = 1.0
        for at, (_, pooled, folds, mean) in enumerate(rows):
            axes.plot(folds, [at - 0.17] * len(folds), "o", color=pens.muted, markersize=4, fillstyle="none")
            if mean is not None:
                axes.plot([mean, mean], [at - 0.31, at - 0.03], color=pens.ink, linewidth=1.4)
            if pooled.value is not None:
                ends = list(pooled.ci95 or ())
                axes.plot(ends, [at + 0.2] * len(ends), color=pens.series[0], linewidth=1.8)
                axes.plot(pooled.value, at + 0.2, "D", color=pens.series[0], markersize=4.5)
                lowest = min([lowest, pooled.value, *ends])
            lowest = min([lowest, *folds])
        axes.set(ylim=(len(rows) - 0.45, -0.55), xlim=(max(0.0, np.floor(lowest * 10 - 0.3) / 10), 1.01))
        axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axes.tick_params(axis="y", length=0)
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(False)
        return figure

    legend = (
        LegendEntry("one fold", "muted", kind="dot"),
        LegendEntry("mean of the folds", "ink", 1.4),
        LegendEntry("all images pooled, 95 % interval", "series-0", 1.8),
    )
    title = "Each fold's value, the mean of the folds, and the pooled value with its interval, for each measure"
    return Plot("folds", title, draw, legend)


def loss_curves(histories: dict[int, pd.DataFrame], best_steps: dict[int, int]) -> dict[int, Plot]:
    """Plot training and validation loss over the steps, one figure for each fold on common axes.

    Args:
        histories: fold -> records with step, train_loss, val_loss; empty cells are skipped.
        best_steps: fold -> the step whose weights were kept, if it is known.
    """
    losses = [_points(one, name) for one in histories.values() for name in ("train_loss", "val_loss")]
    top = max((float(y.max()) for _, y in losses if len(y)), default=1.0)
    last = max((float(x.max()) for x, _ in losses if len(x)), default=1.0)

    def plot(fold: int, history: pd.DataFrame) -> Plot:
        def draw(pens: Pens) -> Figure:
            figure = Figure(figsize=(3.1, 2.1), layout="constrained")
            axes = figure.add_subplot()
            if fold in best_steps:
                axes.axvline(best_steps[fold], color=pens.ink, linewidth=0.8, dashes=(3, 2))
            train, val = _points(history, "train_loss"), _points(history, "val_loss")
            # A single record is a point, which a line does not show.
            axes.plot(
                *train, color=pens.series[0], linewidth=1.0, marker="o" if len(train[0]) == 1 else "", markersize=3.5
            )
            few = len(val[0]) < 40
            axes.plot(*val, color=pens.series[1], linewidth=1.5, marker="o", markersize=2.2 if few else 0)
            axes.set(xlim=(0, last * 1.02), ylim=(0, top * 1.05), xlabel="Step", ylabel="Loss")
            axes.locator_params(nbins=5)
            return figure

        return Plot(f"loss-{fold}", f"Training and validation loss over the steps of model {fold}", draw, _LOSS_LEGEND)

    return {fold: plot(fold, history) for fold, history in histories.items()}


_LOSS_LEGEND = (
    LegendEntry("training loss", "series-0", 1.2),
    LegendEntry("validation loss", "series-1", 2),
    LegendEntry("step whose weights were kept", "ink", 0.8, (3, 2)),
)


def square(x: str, y: str) -> tuple[Figure, Axes]:
    """Create square axes from 0 to 1 in both directions."""
    figure = Figure(figsize=SQUARE, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xticks=_TICKS, yticks=_TICKS, aspect="equal", xlabel=x, ylabel=y)
    return figure, axes


def _points(history: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    if column not in history:
        return np.empty(0), np.empty(0)
    x = pd.to_numeric(history["step"], errors="coerce").to_numpy(np.float64)
    y = pd.to_numeric(history[column], errors="coerce").to_numpy(np.float64)
    there = np.isfinite(x) & np.isfinite(y)
    return x[there], y[there]


def _roc_axes(pens: Pens) -> tuple[Figure, Axes]:
    figure, axes = square("1 \N{MINUS SIGN} specificity", "Sensitivity")
    axes.plot([0, 1], [0, 1], color=pens.muted, linewidth=0.7, dashes=(2, 3))
    return figure, axes
