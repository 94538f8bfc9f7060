"""Figures of a report about the probabilities: calibration and decision curve. All numbers are from metrics.json."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from usvit.documents import LegendEntry, Pens, Plot
from usvit.records import BinRecord, DecisionCurve
from usvit.reports.figures import SQUARE, square
from usvit.reports.formatting import usefulness

BAND = "simultaneous 95 % band of its distance to the better default"


def calibration_plot(bins: Sequence[BinRecord], ece: str) -> Plot:
    """Plot the observed share over the mean probability in equal-mass bins, with the intervals of the shares.

    Args:
        bins: of the positive class.
        ece: the calibration error as text, for the title.
    """
    x = [one.mean_prob for one in bins]
    y = np.array([one.share.value for one in bins], dtype=np.float64)
    edges = [bins[0].lowest, *(one.highest for one in bins)]

    def draw(pens: Pens) -> Figure:
        figure, axes = square("Mean probability of the bin", "Observed share of the class")
        axes.plot([0, 1], [0, 1], color=pens.muted, linewidth=0.7, dashes=(2, 3))
        for at, one in zip(x, bins, strict=True):
            if one.share.ci95:
                axes.plot([at, at], one.share.ci95, color=pens.series[0], linewidth=1.2)
        axes.plot(edges, [0.012] * len(edges), "|", color=pens.muted, markersize=7)
        axes.plot(x, y, color=pens.series[0], linewidth=0.9, marker="o", markersize=4)
        return figure

    smallest, largest = min(one.n_images for one in bins), max(one.n_images for one in bins)
    each = f"{smallest} images" if smallest == largest else f"{smallest} to {largest} images"
    legend = (
        LegendEntry(f"{len(bins)} bins of {each} each, with 95 % intervals", "series-0"),
        LegendEntry("perfect calibration", "muted", 0.9, (2, 3)),
        LegendEntry("bounds of the bins (marks above the axis)", "muted", kind="tick"),
    )
    title = f"Calibration of the positive class in {len(bins)} equal-mass bins; expected calibration error {ece}"
    return Plot("calibration", title, draw, legend)


def decision_plot(curve: DecisionCurve) -> Plot:
    """Plot the net benefit of the model, of acting on every image, and of acting on none."""
    thresholds = np.array(curve.thresholds, dtype=np.float64)
    model = np.array(curve.model, dtype=np.float64)  # None becomes NaN, which is not drawn
    everybody = np.array(curve.treat_all, dtype=np.float64)
    band = curve.band  # null where it cannot be computed
    best = np.maximum(everybody, 0)
    top = max(curve.prevalence or 0, float(np.nanmax(model, initial=0.0))) * 1.08 or 1.0

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=SQUARE, layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(0, color=pens.ink, linewidth=0.9)
        (line,) = axes.plot(thresholds, everybody, color=pens.series[1], linewidth=1.4)
        line.set_dashes((5, 1.8))
        if band:
            lower, upper = (best + np.array(end, dtype=np.float64) for end in (band.lower, band.upper))
            axes.fill_between(thresholds, lower, upper, color=pens.series[0], alpha=0.2, linewidth=0)
        axes.plot(thresholds, model, color=pens.series[0], linewidth=1.8)
        axes.set(xlim=(0, 1), ylim=(-0.25 * top, top), xlabel="Threshold probability", ylabel="Net benefit")
        return figure

    legend = (
        LegendEntry("the model", "series-0", 1.8),
        *([LegendEntry(BAND, "series-0", kind="band")] if band else []),
        LegendEntry("act on every image", "series-1", 1.4, (5, 1.8)),
        LegendEntry("act on none", "ink", 0.9),
    )
    title = f"Decision curve: net benefit over the threshold probability; {usefulness(curve)}"
    return Plot("decision-curve", title, draw, legend)
