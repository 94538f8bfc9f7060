"""Figures of scores.html: histograms of probability, OOD score and quality of the scored images."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from usvit.documents import LegendEntry, Pens, Plot

SIZE = (4.1, 2.5)
N_BINS = 40

Float = NDArray[np.float64]


def probability_plot(values: Float, unusual: NDArray[np.bool_], threshold: float | None) -> Plot:
    """Plot the histogram of a probability over [0, 1], usual images below and unusual ones on top.

    Args:
        values: (N,), NaN if an image has none.
        unusual: (N,).
        threshold: drawn as a line; None draws none.
    """
    known = np.isfinite(values)
    edges = np.linspace(0, 1, N_BINS + 1)
    usual, odd = (np.histogram(values[known & which], edges)[0] for which in (~unusual, unusual))
    legend = [LegendEntry("images like the training images", "series-0", kind="band")] if odd.any() else []
    if odd.any():
        legend.append(LegendEntry("unusual images", "series-1", kind="band"))
    if threshold is not None:
        legend.append(LegendEntry(f"threshold {threshold:.3f}", "ink", 1.2, (3, 2)))
    middle = f", median {np.median(values[known]):.3f}" if known.any() else ""
    title = f"Histogram of the calibrated probability over {known.sum():,} images{middle}"
    return _histogram("probability", title, edges, [usual, odd], threshold, "Calibrated probability", tuple(legend))


def novelty_plot(values: Float, limit: float | None) -> Plot:
    """Plot the histogram of the OOD score; the last bin counts all values beyond the axis.

    Args:
        values: (N,), NaN if an image has none; at least one number.
        limit: an image above it is unusual; drawn as a line.
    """
    known = values[np.isfinite(values)]
    low = min(0.0, float(known.min()))
    high = max(float(np.percentile(known, 95)) * 1.3, (limit or 0) * 1.6)
    high = max(high, low + 1e-9) if known.max() > high else max(float(known.max()), (limit or 0) * 1.1, low + 1e-9)
    edges = np.linspace(low, high, N_BINS + 1)
    within, beyond = known <= high, int((known > high).sum())
    bins = np.histogram(known[within], edges)[0]
    over = np.zeros_like(bins)
    over[-1] = beyond
    legend = (
        [LegendEntry(f"{beyond:,} beyond {high:.3g}, up to {known.max():.3g}", "series-1", kind="band")]
        if beyond
        else []
    )
    if limit is not None:
        legend.append(LegendEntry(f"limit {limit:.3g}", "ink", 1.2, (3, 2)))
    title = f"Histogram of the OOD score over {len(known):,} images, median {np.median(known):.3g}"
    return _histogram("novelty", title, edges, [bins, over], limit, "OOD score", tuple(legend))


def quality_plot(values: Float) -> Plot:
    """Plot the histogram of quality over [0, 1]; ``values`` is (N,), NaN if an image has none."""
    known = values[np.isfinite(values)]
    edges = np.linspace(0, 1, N_BINS + 1)
    middle = f", median {np.median(known):.3f}" if len(known) else ""
    title = f"Histogram of image quality over {len(known):,} images{middle}"
    return _histogram("quality", title, edges, [np.histogram(known, edges)[0]], None, "Quality", ())


def _histogram(
    name: str,
    title: str,
    edges: Float,
    bins: list[NDArray[np.int64]],
    mark: float | None,
    label: str,
    legend: tuple[LegendEntry, ...],
) -> Plot:
    """Stacked bars; a dashed line at ``mark``."""

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        base = np.zeros(len(edges) - 1)
        for own, colour in zip(bins, pens.series, strict=False):
            # One outline for all bars: no seams between them.
            axes.stairs(base + own, edges, baseline=base, fill=True, color=colour, linewidth=0)
            base = base + own
        if mark is not None:
            axes.axvline(mark, color=pens.ink, linewidth=1.2, dashes=(3, 2))
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0, max(1.0, base.max()) * 1.06), xlabel=label, ylabel="Images")
        axes.grid(False, axis="x")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        return figure

    return Plot(name, title, draw, legend)
