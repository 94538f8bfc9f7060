"""Figure of a transfer's page: validation accuracy of all settings that were tried."""

import pandas as pd
from matplotlib.figure import Figure

from usvit.documents import DASHES, N_SERIES, LegendEntry, Pens, Plot

_AXES = {"l2": "Strength of regularisation", "neighbours": "Neighbours", "k": "Neighbours"}


def tried_plot(table: pd.DataFrame) -> Plot | None:
    """Plot the validation accuracy over the strength of regularisation or the number of neighbours.

    Args:
        table: ``results.csv`` of a transfer. Rows of several draws of the training images are averaged; few-shot has
            a line for each number of images per class.

    Returns:
        None if the settings have no numeric axis (the cells of a sweep) or there is only one setting.
    """
    rows = table[(table["part"] != "test") & table["accuracy"].notna()]
    x = next((name for name in _AXES if rows[name].nunique() > 1), None)
    if x is None:
        return None
    by_shots = x != "k" and rows["k"].notna().any()
    shots = sorted({int(k) for k in rows["k"].dropna()})[:N_SERIES] if by_shots else [None]
    series = [
        (one, part.groupby(x).agg(accuracy=("accuracy", "mean"), chosen=("chosen", "max")))
        for one, part in ((one, rows if one is None else rows[rows["k"] == one]) for one in shots)
    ]

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(4.6, 2.6), layout="constrained")
        axes = figure.add_subplot()
        for number, (_, values) in enumerate(series):
            pen = pens.series[number]
            axes.plot(values.index, values.accuracy, color=pen, linewidth=1.4, dashes=DASHES[number] or (1, 0))
            best = values[values.chosen]
            axes.plot(
                best.index, best.accuracy, color=pen, marker="o", markersize=7, fillstyle="none", linestyle="none"
            )
        axes.set(xlabel=_AXES[x], ylabel="Accuracy", ylim=(0, 1.02))
        if x == "l2":
            axes.set_xscale("log")
        return figure

    legend = [
        LegendEntry("accuracy" if one is None else f"{one} images per class", f"series-{number}", 1.4, DASHES[number])
        for number, (one, _) in enumerate(series)
    ]
    best = max(float(values.accuracy.max()) for _, values in series)
    title = f"Validation accuracy over the settings that were tried; at best {best:.3f}"
    return Plot("tried", title, draw, (*legend, LegendEntry("chosen", "ink", kind="dot")))
