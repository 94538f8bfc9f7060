"""Plots of the watched quantities over the periods."""

from collections.abc import Callable

from matplotlib.figure import Figure

from usvit.documents import LegendEntry, Pens, Plot
from usvit.monitoring.charts import QUANTITIES
from usvit.records import WatchChart, WatchRecord


def value_plots(record: WatchRecord) -> dict[tuple[int, str], Plot]:
    """Return a plot for each model and quantity, of all its images."""
    return {
        (chart.model, name): Plot(
            f"model-{chart.model + 1}-{name}",
            f"{QUANTITIES[name].title} of each {record.every}",
            _drawn(chart, name),
            _LEGEND,
        )
        for chart in record.charts
        if chart.division == "all"
        for name in chart.baseline
    }


_LEGEND = (
    LegendEntry("with 95 % interval", "series-0"),
    LegendEntry("alarm", "series-1"),
    LegendEntry("baseline", "muted", dash=(2.0, 2.0)),
)


def _drawn(chart: WatchChart, name: str) -> Callable[[Pens], Figure]:
    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(5.2, 2.3), layout="constrained")
        axes = figure.add_subplot()
        for k, period in enumerate(chart.periods):
            one = period.values.get(name)
            if one is None or one.value.value is None:
                continue
            colour = pens.series[1] if one.alarms else pens.muted if period.state == "baseline" else pens.series[0]
            axes.plot(k, one.value.value, marker="D" if one.alarms else "o", markersize=4.5, color=colour)
            if one.value.ci95 is not None:
                axes.vlines(k, *one.value.ci95, color=colour, linewidth=1.4)
        middle = chart.baseline[name].value
        if middle is not None:
            axes.axhline(middle, color=pens.muted, linewidth=1, dashes=(2, 2))
        step = max(1, (len(chart.periods) + 7) // 8)
        shown = range(0, len(chart.periods), step)
        axes.set_xticks(shown, [chart.periods[k].period for k in shown])
        axes.set(ylabel=QUANTITIES[name].title)
        return figure

    return draw
