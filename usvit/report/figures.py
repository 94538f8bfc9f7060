"""The figures of a report."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from usvit.metrics.points import roc
from usvit.report.svg import DASHES, INK, MUTED, N_SERIES, SERIES, drawing_style, to_svg


def roc_by_class(test: pd.DataFrame, classes: Sequence[str]) -> Markup:
    """Each class against the rest, over all rows of ``test``; class k is drawn as series k.

    A class without images, or with all of them, has no curve. Where there are two classes, one
    curve is the other's mirror image.
    """
    with drawing_style():
        figure, axes = _roc_axes()
        for k, name in enumerate(classes):
            curve = roc((test["label"] == name).to_numpy(), test[f"prob_{name}"].to_numpy())
            if curve:
                (line,) = axes.plot(*curve, color=SERIES[k % N_SERIES], linewidth=1.6)
                if dashes := DASHES[k % N_SERIES]:
                    line.set_dashes(dashes)
        return to_svg(figure, name="roc-classes", title=f"ROC curves, one for each of {len(classes)} classes")


def roc_by_fold(test: pd.DataFrame, positive: str, series: int) -> Markup:
    """The positive class against the rest: a thin line for each fold, the pooled curve in the class's colour."""
    with drawing_style():
        figure, axes = _roc_axes()
        for _, rows in test.groupby("fold"):
            curve = roc((rows["label"] == positive).to_numpy(), rows[f"prob_{positive}"].to_numpy())
            if curve:
                axes.plot(*curve, color=MUTED, linewidth=0.8, alpha=0.8)
        curve = roc((test["label"] == positive).to_numpy(), test[f"prob_{positive}"].to_numpy())
        if curve:
            axes.plot(*curve, color=SERIES[series % N_SERIES], linewidth=1.8)
        title = f"ROC curves of the positive class, one for each of {test['fold'].nunique()} folds and one pooled"
        return to_svg(figure, name="roc-folds", title=title)


def loss_curves(histories: dict[int, pd.DataFrame], best_steps: dict[int, int]) -> dict[int, Markup]:
    """Training and validation loss over the steps, a figure for each fold on common axes.

    Args:
        histories: fold -> records with step, train_loss, val_loss; empty cells are skipped.
        best_steps: fold -> the step whose weights were kept, where it is known.
    """
    losses = [_points(one, name) for one in histories.values() for name in ("train_loss", "val_loss")]
    top = max((float(y.max()) for _, y in losses if len(y)), default=1.0)
    last = max((float(x.max()) for x, _ in losses if len(x)), default=1.0)
    figures = {}
    with drawing_style():
        for fold, history in histories.items():
            figure = Figure(figsize=(3.1, 2.1), layout="constrained")
            axes = figure.add_subplot()
            if fold in best_steps:
                axes.axvline(best_steps[fold], color=INK, linewidth=0.8, dashes=(3, 2))
            axes.plot(*_points(history, "train_loss"), color=SERIES[0], linewidth=1.0)
            val = _points(history, "val_loss")
            # A single evaluation is a point, which a line does not show.
            axes.plot(*val, color=SERIES[1], linewidth=1.5, marker="o", markersize=2.2 if len(val[0]) < 40 else 0)
            axes.set(xlim=(0, last * 1.02), ylim=(0, top * 1.05), xlabel="Step", ylabel="Loss")
            axes.locator_params(nbins=5)
            title = f"Training and validation loss over the steps of model {fold}"
            figures[fold] = to_svg(figure, name=f"loss-{fold}", title=title)
    return figures


def _points(history: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    if column not in history:
        return np.empty(0), np.empty(0)
    x = pd.to_numeric(history["step"], errors="coerce").to_numpy(np.float64)
    y = pd.to_numeric(history[column], errors="coerce").to_numpy(np.float64)
    there = np.isfinite(x) & np.isfinite(y)
    return x[there], y[there]


def _roc_axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(3.7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, dashes=(2, 3))
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xticks=ticks, yticks=ticks, aspect="equal")
    axes.set(xlabel="1 \N{MINUS SIGN} specificity", ylabel="Sensitivity")
    return figure, axes
