"""Figures of the page: both sides of each left-out set, and recalibration by the number of patients."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from usvit.documents import LegendEntry, Pens, Plot
from usvit.upstream.records.shift import ShiftRecalibration, ShiftRecord, ShiftRow, ShiftSide

_PANELS = (
    ("sensitivity", "Sensitivity", None),
    ("specificity", "Specificity", None),
    ("slope", "Calibration slope", 1.0),
    ("observed_expected", "Observed : expected", 1.0),
)
_FITTED = (
    ("frozen", "frozen: the unchanged model", "muted", "s", -1),
    ("temperature", "temperature and threshold refitted", "series-0", "o", 0),
    ("platt", "Platt scaling and threshold refitted", "series-1", "^", 1),
)


def sides_plot(record: ShiftRecord) -> Plot:
    """Plot AUC, sensitivity and specificity inside and outside, one line for each left-out set."""

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(8.2, 0.9 + 0.55 * len(record.rows)), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, 3, sharey=True))
        for panel, (name, title) in zip(
            panels, (("auc", "AUC"), ("sensitivity", "Sensitivity"), ("specificity", "Specificity")), strict=True
        ):
            for place, row in enumerate(record.rows):
                _one_side(panel, row.internal, name, place - 0.14, pens.series[0], "o")
                _one_side(panel, row.external, name, place + 0.14, pens.series[1], "s")
            panel.set_xlabel(title)
            panel.set_ylim(len(record.rows) - 0.5, -0.5)
            panel.set_yticks(range(len(record.rows)), [str(k + 1) for k in range(len(record.rows))])
        panels[0].set_ylabel("Left-out set")
        return figure

    return Plot(
        "sides",
        "AUC, sensitivity and specificity inside and outside, with 95 % intervals",
        draw,
        (
            LegendEntry("inside: held-out images of the sets of the training (circles)", "series-0"),
            LegendEntry("outside: the left-out set (squares)", "series-1"),
            *(LegendEntry(f"{k}: {row.left_out} left out", "ink", 0) for k, row in enumerate(record.rows, start=1)),
        ),
    )


def recalibration_plot(row: ShiftRow, number: int) -> Plot | None:
    """Plot the figures on the left-out set by the number of patients of the recalibration; None if there are none."""
    if not row.recalibration:
        return None
    sizes = sorted({one.n_patients for one in row.recalibration})

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(8.2, 2.4), layout="constrained")
        for panel, (name, title, ideal) in zip(np.atleast_1d(figure.subplots(1, 4)), _PANELS, strict=True):
            if ideal is not None:
                panel.axhline(ideal, color=pens.muted, linewidth=0.8)
            for fitted, _, colour, marker, shift in _FITTED:
                found = [one for one in row.recalibration if one.fitted == fitted]
                _spread(panel, found, name, sizes, shift, pens.of(colour), marker)
            panel.set_xticks(range(len(sizes)), [str(size) for size in sizes])
            panel.set_xlim(-0.5, len(sizes) - 0.5)
            panel.set_title(title, fontsize=8.5)
            panel.set_xlabel("Patients")
            if ideal is None:
                panel.set_ylim(-0.03, 1.03)
            elif all(
                getattr(one, name).interval is None or getattr(one, name).interval[0] > 0 for one in row.recalibration
            ):
                _ratio_axis(panel)
        return figure

    markers = {"s": "squares", "o": "circles", "^": "triangles"}
    legend = tuple(LegendEntry(f"{text} ({markers[marker]})", colour) for _, text, colour, marker, _ in _FITTED)
    title = "Figures on the other patients of the left-out set by the number of patients of the recalibration"
    return Plot(f"recalibration-{number}", title, draw, legend)


def _ratio_axis(panel: Axes) -> None:
    """Show ratios on a logarithmic axis, so that twice and half are equally far from 1."""
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    step = max(1, -(-len(powers) // 6))
    ticks = [2.0**power for power in powers if power % step == 0]
    panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()


def _one_side(panel: Axes, side: ShiftSide, name: str, place: float, colour: str, marker: str) -> None:
    value = getattr(side, name)
    if value.value is None:
        return
    if value.ci95 is not None:
        panel.plot(value.ci95, [place, place], color=colour, linewidth=1.4)
    panel.plot(value.value, place, color=colour, marker=marker, markersize=4.5, linestyle="none")


def _spread(
    panel: Axes,
    found: Sequence[ShiftRecalibration],
    name: str,
    sizes: Sequence[int],
    shift: int,
    colour: str,
    marker: str,
) -> None:
    drawn = [(sizes.index(one.n_patients) + 0.2 * shift, getattr(one, name)) for one in found]
    known = [(x, one) for x, one in drawn if one.median is not None]
    for x, one in known:
        panel.plot([x, x], one.interval, color=colour, linewidth=1.2)
    panel.plot(
        [x for x, _ in known],
        [one.median for _, one in known],
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=0.8,
    )
