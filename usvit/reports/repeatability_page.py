"""The page ``repeatability.html``: one file, no script, no network."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from usvit.documents import LegendEntry, Pens, Plot
from usvit.evaluation import ScorePairs
from usvit.files import write_text
from usvit.records import ChangeRecord, FlipRecord, RepeatabilityRecord, RepeatsRecord
from usvit.reports.remarks import remarks
from usvit.reports.templating import environment

MOST_POINTS = 3000
"""Pairs that the scatter plot draws; of more, it draws every n-th."""
CHANGE_ROW = 0.24
"""Inches per change in the charts."""


def write_repeatability_page(path: Path, record: RepeatabilityRecord, pairs: ScorePairs | None = None) -> None:
    """Write the page of a repeatability.json; the same record and pairs give the same bytes.

    Args:
        path: the file.
        record: its content.
        pairs: scores of the pairs, for the plot of repeats; it is not drawn without them.

    Raises:
        UsvitError: the page cannot be written.
    """
    plots = []
    if record.repeats is not None and pairs is not None:
        plots.append(_difference_plot(record.repeats, pairs))
    measured = [one for one in record.changes or [] if one.scales is not None]
    rules = _rules(record)
    if measured:
        plots += [_limits_plot(measured), _flips_plot(measured, _shown_rule(rules))]
    values = {"r": record, "plots": plots, "measured": measured, "rules": rules, "flip_of": flip_of}
    values["remarks"] = _agreement_remarks(record)
    write_text(path, environment().get_template("repeatability.html.j2").render(values))


def _agreement_remarks(record: RepeatabilityRecord) -> list[str]:
    """Say why a limit, a coefficient or an ICC has no interval, or another than usual."""
    found = [] if record.repeats is None else [("repeats", record.repeats.scales)]
    found += [(f"{one.change} {one.strength}", one.scales) for one in record.changes or [] if one.scales is not None]
    return remarks(
        (
            (f"{title}, {name}, {scale}", getattr(getattr(scales, scale), key))
            for name, scales in found
            for scale in ("probability", "logit")
            for key, title in _FIGURES.items()
        ),
        warnings=False,
    )


_FIGURES = {
    "lower_limit": "lower limit",
    "upper_limit": "upper limit",
    "repeatability_coefficient": "repeatability coefficient",
    "icc": "ICC",
}


def flip_of(change: ChangeRecord, rule: str) -> FlipRecord | None:
    """Return the flips of a change at one operating point; None if it has none."""
    return next((one for one in change.flips if one.rule == rule), None)


def _rules(record: RepeatabilityRecord) -> list[str]:
    entries = [record.repeats.flips] if record.repeats else [one.flips for one in record.changes or []]
    return list(dict.fromkeys(flip.rule for flips in entries for flip in flips))


def _shown_rule(rules: list[str]) -> str:
    """Return the operating point of the chart: the first that the run has chosen, or else the most probable class."""
    return next((rule for rule in rules if rule.startswith("sensitivity")), rules[0])


def _difference_plot(repeats: RepeatsRecord, pairs: ScorePairs) -> Plot:
    step = -(-len(pairs.first) // MOST_POINTS)
    mean, apart = (pairs.first + pairs.second)[::step] / 2, np.abs(pairs.first - pairs.second)[::step]
    limit = repeats.scales.probability.repeatability_coefficient

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(mean, apart, "o", color=pens.series[0], markersize=3, fillstyle="none", markeredgewidth=0.7)
        if limit.value is not None:
            axes.axhline(limit.value, color=pens.series[1], linewidth=1.4)
        if limit.ci95 is not None:
            axes.axhspan(*limit.ci95, color=pens.series[1], alpha=0.2, linewidth=0)
        top = max(float(apart.max(initial=0)), limit.value or 0, (limit.ci95 or [0, 0])[1], 0.01) * 1.06
        axes.set(xlim=(0, 1), ylim=(0, top), xlabel="Mean probability of the pair", ylabel="Absolute difference")
        return figure

    legend = (
        LegendEntry(f"pairs of repeats ({len(mean):,} of {len(pairs.first):,})", "series-0", kind="dot"),
        LegendEntry("repeatability coefficient", "series-1", 1.4),
        LegendEntry("its 95 % interval", "series-1", kind="band"),
    )
    return Plot("differences", f"Absolute difference and mean probability of {len(mean):,} pairs", draw, legend)


def _limits_plot(changes: list[ChangeRecord]) -> Plot:
    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(6.4, 0.7 + CHANGE_ROW * len(changes)), layout="constrained")
        axes = figure.add_subplot()
        for row, one in enumerate(changes):
            scale = one.scales.probability if one.scales else None
            if scale is None or scale.bias.value is None:
                continue
            low, high = scale.lower_limit.value, scale.upper_limit.value
            if low is not None and high is not None:
                axes.plot([low, high], [row, row], color=pens.series[0], linewidth=1.4)
            for limit in (scale.lower_limit, scale.upper_limit):
                if limit.ci95:
                    axes.plot(limit.ci95, [row, row], color=pens.series[0], linewidth=5, alpha=0.3)
            axes.plot(scale.bias.value, row, "o", color=pens.series[1], markersize=4)
        axes.axvline(0, color=pens.muted, linewidth=0.8)
        _name_rows(axes, changes, "Changed less original probability")
        return figure

    legend = (
        LegendEntry("bias", "series-1", kind="dot"),
        LegendEntry("limits of agreement", "series-0", 1.4),
        LegendEntry("95 % intervals of the limits", "series-0", kind="band"),
    )
    return Plot("limits", "Bias and limits of agreement of each change", draw, legend)


def _flips_plot(changes: list[ChangeRecord], rule: str) -> Plot:
    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(6.4, 0.7 + CHANGE_ROW * len(changes)), layout="constrained")
        axes = figure.add_subplot()
        for row, one in enumerate(changes):
            flip = flip_of(one, rule)
            if flip is None or flip.rate.value is None:
                continue
            if flip.rate.ci95:
                axes.plot(flip.rate.ci95, [row, row], color=pens.series[0], linewidth=1.4)
            axes.plot(flip.rate.value, row, "o", color=pens.series[0], markersize=4)
        _name_rows(axes, changes, "Share of the images whose decision flips")
        axes.set_xlim(left=0)
        return figure

    legend = (LegendEntry(f"flips at '{rule}', with 95 % interval", "series-0", 1.4),)
    return Plot("flips", f"Share of flipped decisions of each change at '{rule}'", draw, legend)


def _name_rows(axes: Axes, changes: list[ChangeRecord], label: str) -> None:
    axes.set_yticks(range(len(changes)), [f"{one.change} {one.strength}" for one in changes])
    axes.set_ylim(len(changes) - 0.5, -0.5)
    axes.set_xlabel(label)
