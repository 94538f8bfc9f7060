"""``bench.svg``: images/s by model on a log axis, or over the batch, with the papers' figures as hollow markers."""

import io

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from usvit.upstream.records.bench import BenchRecord, BenchResult

_COLOURS = ("#2166ac", "#b2182b", "#1b7837", "#8c510a", "#762a83", "#4d4d4d")
"""Colours that colour-blind readers can distinguish; markers differ, too."""
_MARKERS = ("o", "s", "^", "D", "v", "P")
_STYLE = {
    "svg.hashsalt": "usvit",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


def draw(result: BenchRecord) -> str:
    """Draw the figure as SVG. Equal results give equal bytes."""
    rows = [row for row in result.results if row.reported and row.images_per_second is not None]
    with style.context(["default", _STYLE]):
        by_batch = result.protocol.search == "batches"
        figure = _over_batches(rows) if by_batch else _by_model(rows, result)
        machine = result.machine
        figure.suptitle(
            f"usvit bench, protocol {result.protocol.name}\n{machine.name}, {machine.threads} threads",
            fontsize=9,
        )
        buffer = io.StringIO()
        # "tight": long titles and names are not cut off.
        figure.savefig(
            buffer, format="svg", bbox_inches="tight", facecolor="white", metadata={"Date": None, "Creator": None}
        )
    return buffer.getvalue()


def middle_half(row: BenchResult) -> tuple[float, float]:
    """Return images/s at the third and at the first quartile of the times, of a row with status 'ok'."""
    assert row.seconds_q3 is not None and row.seconds_q1 is not None
    return row.batch / row.seconds_q3, row.batch / row.seconds_q1


def _by_model(rows: list[BenchResult], result: BenchRecord) -> Figure:
    names = [model.name for model in result.models]
    series = sorted({(row.mode, row.precision) for row in rows}, key=lambda pair: (pair[0] != "infer", pair[1]))
    height = max(0.3 * len(series), 0.45) * len(names) + 1.6
    figure = Figure(figsize=(7, height), layout="constrained")
    axes = figure.add_subplot()
    step = 0.7 / max(1, len(series))
    for k, (mode, precision) in enumerate(series):
        mine = [row for row in rows if (row.mode, row.precision) == (mode, precision)]
        at = [names.index(row.model) + (k - (len(series) - 1) / 2) * step for row in mine]
        speeds = [row.images_per_second or 0.0 for row in mine]
        half = [
            [abs(end - speed) for end, speed in zip(ends, speeds, strict=True)]
            for ends in zip(*map(middle_half, mine), strict=True)
        ]
        axes.errorbar(
            speeds,
            at,
            xerr=half,
            fmt=_MARKERS[k % len(_MARKERS)],
            color=_COLOURS[k % len(_COLOURS)],
            markersize=5,
            linewidth=1,
            capsize=2,
            label=f"{'inference' if mode == 'infer' else 'training'}, {precision}",
        )
    _papers(axes, names, result)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first model on top
    axes.grid(visible=False, axis="y")
    _speed_axis(axes, "x")
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _papers(axes: Axes, names: list[str], result: BenchRecord) -> None:
    points = [
        (figure.images_per_second, names.index(model.name))
        for model in result.models
        for figure in model.paper
        if figure.protocol == result.protocol.figures and "infer" in result.protocol.modes
    ]
    if points:
        axes.plot(
            *zip(*points, strict=True),
            linestyle="",
            marker="D",
            markersize=6,
            markerfacecolor="none",
            color="#777777",
            label=f"paper, other hardware: {result.protocol.hardware}",
        )


def _over_batches(rows: list[BenchResult]) -> Figure:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    networks = list(dict.fromkeys((row.model, row.mode, row.precision) for row in rows))
    for k, key in enumerate(networks):
        for branches, dashes in ((None, "-"), ("sequential", "--"), ("parallel", "-")):
            mine = [row for row in rows if (row.model, row.mode, row.precision) == key and row.branches == branches]
            if mine:
                axes.plot(
                    [row.batch for row in mine],
                    [row.images_per_second or 0.0 for row in mine],
                    linestyle=dashes,
                    marker=_MARKERS[k % len(_MARKERS)],
                    color=_COLOURS[k % len(_COLOURS)],
                    markersize=4,
                    label=" ".join(filter(None, [*key, branches])),
                )
    batches = sorted({row.batch for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.set_xlabel("batch")
    _speed_axis(axes, "y")
    if networks:
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _speed_axis(axes: Axes, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_label_text("images/s (log axis; bars: the middle half of the repeats)" if which == "x" else "images/s")
