"""Figures of the pages: fitted curves, residuals, isoFLOP curves and the frontier."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from usvit.documents import LegendEntry, Pens, Plot
from usvit.upstream.records.scaling import ScalingRecord, ShapeRecord
from usvit.upstream.scaling.shapes import TITLES
from usvit.upstream.scaling.stored_fit import StoredFit
from usvit.upstream.scaling.surface import Array, Surface
from usvit.upstream.scaling.tables import budgets_of

_MOST_CURVES = 6
"""Budgets that are drawn: the smallest, the largest and others between them."""
_GRID = 120


def _drawn_budgets(record: ScalingRecord) -> list[float]:
    """Return the budgets that the figures show."""
    known = budgets_of(np.array([point.gflops for point in record.points]))
    if len(known) <= _MOST_CURVES:
        return known
    places = np.linspace(0, len(known) - 1, _MOST_CURVES).round().astype(int)
    return [known[place] for place in places]


def fit_plot(fit: StoredFit) -> Plot:
    """Plot loss over each dimension, one curve for each budget, with the networks that differ in it alone."""
    record, surface = fit.record, fit.surface
    budgets, k = _drawn_budgets(record), len(record.dimensions)
    shapes = np.array([[point.shape[one.name] for one in record.dimensions] for point in record.points])
    compute = np.array([point.gflops for point in record.points])
    losses = np.array([point.loss for point in record.points])

    def draw(pens: Pens) -> Figure:
        figure, axes = _panels(k, 2.5)
        for place, (one, panel) in enumerate(zip(record.dimensions, axes, strict=True)):
            others = [tuple(np.delete(shape, place)) for shape in shapes]
            usual = Counter(others).most_common(1)[0][0]
            arm = np.array([other == usual for other in others])
            grid = np.geomspace(min(one.values), max(one.values), _GRID)
            for number, budget in enumerate(budgets):
                near = arm & (np.abs(compute / budget - 1) < 0.06)
                pen = pens.series[number % len(pens.series)]
                panel.plot(shapes[near, place], losses[near], color=pen, marker="o", markersize=3.5, linestyle="none")
                curve = np.insert(np.tile(np.array(usual, float), (_GRID, 1)), place, grid, axis=1)
                panel.plot(grid, surface.loss(curve, budget), color=pen, linewidth=1.3)
            _log_axis(panel, TITLES[one.name], one.values)
        axes[0].set_ylabel("Loss")
        return figure

    return Plot("fitted", "Loss over each dimension with the fitted curves", draw, _budget_legend(budgets))


def residual_plot(record: ScalingRecord) -> Plot:
    """Plot the relative residuals over the compute and over the fitted loss."""
    compute = np.array([point.gflops * 1e9 for point in record.points])
    fitted = np.array([point.fitted for point in record.points])
    residuals = 100 * (fitted / np.array([point.loss for point in record.points]) - 1)
    outlier = np.array([point.weight < 1 for point in record.points])

    def draw(pens: Pens) -> Figure:
        figure, axes = _panels(2, 2.2)
        for panel, values, label in zip(axes, (compute, fitted), ("Compute (FLOPs)", "Fitted loss"), strict=True):
            panel.axhline(0, color=pens.muted, linewidth=0.8)
            for chosen, colour in ((~outlier, pens.series[0]), (outlier, pens.series[1])):
                panel.plot(
                    values[chosen], residuals[chosen], color=colour, marker="o", markersize=3.5, linestyle="none"
                )
            panel.set_xlabel(label)
        axes[0].set_xscale("log")
        axes[0].set_ylabel("Residual (% of the loss)")
        return figure

    legend = [LegendEntry("training", "series-0", kind="dot")]
    if outlier.any():
        legend.append(LegendEntry("training with less weight", "series-1", kind="dot"))
    worst = float(np.abs(residuals).max())
    return Plot("residuals", f"Relative residuals; at most {worst:.2g} %", draw, tuple(legend))


def isoflop_plot(fit: StoredFit, shape: ShapeRecord) -> Plot:
    """Plot the fitted loss over each dimension at fixed compute, the other dimensions as predicted."""
    record, surface = fit.record, fit.surface
    budgets = [*_drawn_budgets(record)[: _MOST_CURVES - 1], shape.gflops]
    ideal = np.array([shape.ideal[one.name].value for one in record.dimensions])

    def draw(pens: Pens) -> Figure:
        figure, axes = _panels(len(record.dimensions), 2.5)
        for place, (one, panel) in enumerate(zip(record.dimensions, axes, strict=True)):
            low, high = min(*one.values, ideal[place] / 2), max(*one.values, ideal[place] * 2)
            grid = np.geomspace(low, high, _GRID)
            for number, budget in enumerate(budgets):
                last = number == len(budgets) - 1
                pen = pens.ink if last else pens.series[number]
                curve = np.tile(ideal, (_GRID, 1))
                curve[:, place] = grid
                losses = surface.loss(curve, budget)
                panel.plot(grid, losses, color=pen, linewidth=2.0 if last else 1.2)
                if not last:
                    least = int(np.argmin(losses))
                    panel.plot(grid[least], losses[least], color=pen, marker="|", markersize=8)
            at = surface.loss(ideal, shape.gflops)
            panel.plot(ideal[place], at, color=pens.ink, marker="o", markersize=5, fillstyle="none")
            _log_axis(panel, TITLES[one.name], [low, high])
        axes[0].set_ylabel("Fitted loss")
        return figure

    legend = [
        *_budget_legend(budgets[:-1]),
        LegendEntry(f"{shape.gflops * 1e9:.3g} FLOPs, predicted", "ink", 2.0),
        LegendEntry("predicted shape", "ink", kind="dot"),
    ]
    return Plot("isoflop", "Fitted loss over each dimension at fixed compute", draw, tuple(legend))


def frontier_plot(fit: StoredFit, shape: ShapeRecord) -> Plot:
    """Plot the best value of each dimension, and the loss that it reaches, over the compute, with 95 % bands."""
    record, surface = fit.record, fit.surface
    low, high = min(record.compute[0], shape.gflops), max(record.compute[1], shape.gflops)
    compute = np.geomspace(low / 1.5, high * 1.5, 60)
    free = [place for place, one in enumerate(record.dimensions) if not shape.ideal[one.name].fixed]

    def band(panel: Axes, drawn: Sequence[Array], colour: str) -> None:
        low_end, high_end = fit.band(drawn)
        panel.fill_between(compute * 1e9, low_end, high_end, color=colour, alpha=0.2, linewidth=0)

    def draw(pens: Pens) -> Figure:
        figure, axes = _panels(len(free) + 1, 2.4)
        best = surface.optimum(compute)
        for panel, place in zip(axes, free, strict=False):
            one = record.dimensions[place]
            band(panel, [drawn.optimum(compute)[:, place] for drawn in fit.draws], pens.series[0])
            panel.plot(compute * 1e9, best[:, place], color=pens.series[0], linewidth=1.5)
            value = shape.ideal[one.name].value
            panel.plot(shape.gflops * 1e9, value, color=pens.ink, marker="o", markersize=5, fillstyle="none")
            panel.set(yscale="log", title=TITLES[one.name])
            few = _rounded(np.geomspace(*panel.get_ylim(), 5)[1:-1])
            panel.set_yticks(few, [f"{value:,g}" for value in few])
        held = np.array([shape.ideal[one.name].value for one in record.dimensions])

        def reached(one: Surface) -> Array:
            shapes = one.optimum(compute)
            fixed = [place for place in range(len(held)) if place not in free]
            shapes[:, fixed] = held[fixed]
            return one.loss(shapes, compute)

        band(axes[-1], [reached(one) for one in fit.draws], pens.series[0])
        axes[-1].plot(compute * 1e9, reached(surface), color=pens.series[0], linewidth=1.5)
        axes[-1].set_title("loss")
        for panel in axes:
            _log_axis(panel, "Compute (FLOPs)", [low * 1e9, high * 1e9])
            for edge in record.compute:
                panel.axvline(edge * 1e9, color=pens.muted, linewidth=0.8, linestyle=(0, (4, 3)))
        return figure

    legend = (
        LegendEntry("minimum of the fitted form", "series-0", 1.5),
        LegendEntry("95 % band of the bootstrap", "series-0", kind="band"),
        LegendEntry("predicted shape", "ink", kind="dot"),
        LegendEntry("smallest and largest compute of the sweep", "muted", 0.8, (4, 3)),
    )
    return Plot("frontier", "Best shape and its loss over the compute", draw, legend)


def _panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(8.2, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count)))


def _log_axis(panel: Axes, title: str, values: Sequence[float]) -> None:
    panel.set_xscale("log")
    count = 4 if max(values) < 1e5 else 3
    ticks = _rounded(np.geomspace(min(values), max(values), count))
    panel.set_xticks(ticks, [f"{one:,g}" if one < 1e5 else f"{one:g}" for one in ticks])
    panel.minorticks_off()
    panel.set_xlabel(title)


def _rounded(values: Array) -> list[float]:
    """Return the values with two significant digits, each once, smallest first."""
    return sorted({float(f"{one:.2g}") for one in values})


def _budget_legend(budgets: Sequence[float]) -> tuple[LegendEntry, ...]:
    return tuple(
        LegendEntry(f"{budget * 1e9:.3g} FLOPs", f"series-{number % 6}", 1.4) for number, budget in enumerate(budgets)
    )
