"""Figures of a report about abstention: the risk-coverage curve and the rule-out curve, from metrics.json."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from usvit.documents import LegendEntry, Pens, Plot
from usvit.estimate import Estimate
from usvit.records import RiskCoverageRecord, RuleOutPoint
from usvit.reports.figures import SQUARE, square


def risk_coverage_plot(curve: RiskCoverageRecord, area: str) -> Plot:
    """Plot the error among accepted images over the share that is accepted, with its band.

    Args:
        curve: of the test images.
        area: the AURC as text, for the title and the legend.
    """
    accepted, error = np.array(curve.accepted), np.array(curve.error)
    lower, upper = (np.array(end, dtype=np.float64) for end in (curve.lower, curve.upper))  # None becomes NaN
    top = float(np.nanmax([*error, *upper[np.isfinite(upper)]])) * 1.08 or 1.0

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=SQUARE, layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(error[-1], color=pens.muted, linewidth=0.7, dashes=(2, 3))
        axes.fill_between(accepted, lower, upper, color=pens.series[0], alpha=0.2, linewidth=0)
        axes.plot(accepted, error, color=pens.series[0], linewidth=1.8)
        axes.set(xlim=(0, 1.01), ylim=(0, top), xlabel="Share of images accepted", ylabel="Error among them")
        return figure

    legend = (
        LegendEntry(f"the model, AURC {area}", "series-0", 1.8),
        LegendEntry("95 % band, pointwise, from the jackknife over groups", "series-0", kind="band"),
        LegendEntry("error of all images", "muted", 0.9, (2, 3)),
    )
    title = f"Risk-coverage curve: error among the most confident images over their share; area {area}"
    return Plot("risk-coverage", title, draw, legend)


def rule_out_plot(points: Sequence[RuleOutPoint]) -> Plot:
    """Plot the share of positive patients that are missed over the share of patients that are not read.

    Args:
        points: the rule-out curve; at least one point.
    """
    x = _values([one.not_read for one in points])
    missed, omitted = ([getattr(one, name) for one in points] for name in ("sensitivity_lost", "false_omission"))
    lines = ((missed, 0, ()), (omitted, 1, (5, 1.8)))

    def draw(pens: Pens) -> Figure:
        figure, axes = square("Share of patients not read", "Share")
        axes.plot([0, 1], [0, 1], color=pens.muted, linewidth=0.7, dashes=(2, 3))
        for values, k, dash in lines:
            for at, one in zip(x, values, strict=True):
                if one.ci95:
                    axes.plot([at, at], one.ci95, color=pens.series[k], linewidth=1.0, alpha=0.6)
            (line,) = axes.plot(x, _values(values), color=pens.series[k], linewidth=1.6, marker="o", markersize=3.5)
            if dash:
                line.set_dashes(dash)
        return figure

    legend = (
        LegendEntry("positive patients that are missed (sensitivity lost)", "series-0", 1.6),
        LegendEntry("positive among those not read (false-omission rate)", "series-1", 1.6, (5, 1.8)),
        LegendEntry("patients ruled out at random: as many missed as not read", "muted", 0.9, (2, 3)),
    )
    title = "Rule-out curve: positive patients that are missed, and false-omission rate, over the case load saved"
    return Plot("rule-out", title, draw, legend)


def _values(values: Sequence[Estimate]) -> np.ndarray:
    return np.array([one.value for one in values], dtype=np.float64)
