"""Figure of a report: the flow diagram of STARD, from all images to the predictions of the test."""

import itertools
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from usvit.documents import LegendEntry, Pens, Plot
from usvit.records import FlowStep
from usvit.reports.flow import Flow, FlowEnd
from usvit.wording import plural

WIDTH = 4.4
"""Width in inches; so are all lengths below."""
_MAIN, _SIDE, _LINE, _PAD, _GAP = 1.9, 2.1, 0.155, 0.07, 0.3
_CHARACTER = 0.062
"""Mean width of a character of 8 points."""


def flow_plot(flow: Flow) -> Plot:
    """Draw the steps from top to bottom, what was left out beside them, and a box for each class below.

    The figure names classes by letters, which its legend explains.
    """
    letters = [chr(ord("A") + k) for k in range(len(flow.ends))]
    rows = _rows(flow.steps)
    across = (WIDTH - 0.1 * (len(flow.ends) - 1)) / len(flow.ends)
    bottom = [_end_lines(one, letter, flow, across) for one, letter in zip(flow.ends, letters, strict=True)]
    height = sum(_height(kept) + _gap(aside) for kept, aside in rows) + max(map(_height, bottom))

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-0.02, WIDTH + 0.02), ylim=(height + 0.02, -0.02))
        axes.set_axis_off()
        y, middle = 0.0, WIDTH - _SIDE - 0.24 - _MAIN / 2
        for kept, aside in rows:
            _box(axes, middle - _MAIN / 2, y, _MAIN, kept, pens.ink, pens)
            y += _height(kept)
            if (kept, aside) != rows[-1]:
                _arrow(axes, (middle, y), (middle, y + _gap(aside)), pens)
            if aside:
                top = y + (_gap(aside) - _height(aside)) / 2
                _arrow(axes, (middle, y + _gap(aside) / 2), (WIDTH - _SIDE, y + _gap(aside) / 2), pens)
                _box(axes, WIDTH - _SIDE, top, _SIDE, aside, pens.muted, pens)
            y += _gap(aside)
        centres = [k * (across + 0.1) + across / 2 for k in range(len(bottom))]
        fork = y - _GAP / 2
        axes.plot([middle, middle], [y - _GAP, fork], color=pens.ink, linewidth=0.8)
        axes.plot([min(middle, *centres), max(middle, *centres)], [fork, fork], color=pens.ink, linewidth=0.8)
        for k, (lines, centre) in enumerate(zip(bottom, centres, strict=True)):
            _arrow(axes, (centre, fork), (centre, y), pens)
            _box(axes, centre - across / 2, y, across, lines, pens.series[k], pens, width=1.6)
        return figure

    legend = [
        LegendEntry(f"{letter}: {one.name}", f"series-{k}", 2)
        for k, (letter, one) in enumerate(zip(letters, flow.ends, strict=True))
    ]
    first, last = flow.steps[0], flow.steps[-1]
    title = f"Flow diagram: {plural(first.n, 'image')} {first.what.lower()}, {last.n:,} {last.what.lower()}"
    return Plot("flow-diagram", title, draw, tuple(legend) if len(legend) > 1 else ())


def _rows(steps: Sequence[FlowStep]) -> list[tuple[list[str], list[str]]]:
    """Return the lines of each step that is kept, and of what is left out after it."""
    rows: list[tuple[list[str], list[str]]] = []
    for left_out, several in itertools.groupby(steps, key=lambda step: step.left_out):
        own = list(several)
        if left_out:
            title = "Not tested" if any(one.what.startswith("used for") for one in own) else "Left out"
            lines = [f"{title}: {sum(one.n for one in own):,}"]
            for one in own:
                patients = f" (all images of {plural(one.n_patients, 'patient')})" if one.n_patients else ""
                lines += _wrapped(f"{one.n:,} {one.what}{patients}", _SIDE)
            rows[-1] = rows[-1][0], lines
        else:
            rows += [([one.what, plural(one.n, "image"), *_units(one)], []) for one in own]
    return rows


def _units(step: FlowStep) -> list[str]:
    known = (("lesion", step.n_lesions), ("patient", step.n_patients))
    return [plural(n, unit) for unit, n in known if n is not None]


def _end_lines(end: FlowEnd, letter: str, flow: Flow, width: float) -> list[str]:
    noun = plural(end.n, flow.unit)
    lines = [f"{letter}: {noun}" if len(flow.ends) > 1 else noun]
    for said, n in end.results:
        lines += _wrapped(f"{said}: {n:,}", width)
    return lines


def _wrapped(text: str, width: float) -> list[str]:
    return textwrap.wrap(text, max(12, int((width - 2 * _PAD) / _CHARACTER)))


def _height(lines: Sequence[str]) -> float:
    return len(lines) * _LINE + 2 * _PAD


def _gap(aside: Sequence[str]) -> float:
    return _height(aside) + 0.16 if aside else _GAP


def _box(
    axes: Axes, x: float, y: float, w: float, lines: Sequence[str], colour: str, pens: Pens, *, width: float = 0.8
) -> None:
    style = "round,pad=0,rounding_size=0.05"
    box = FancyBboxPatch((x, y), w, _height(lines), boxstyle=style, facecolor="none", edgecolor=colour, linewidth=width)
    axes.add_patch(box)
    for k, line in enumerate(lines):
        at = y + _PAD + (k + 0.5) * _LINE
        weight = "bold" if k == 0 else "normal"
        axes.text(x + _PAD, at, line, fontsize=8, color=pens.ink, va="center", fontweight=weight, parse_math=False)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], pens: Pens) -> None:
    look = {"arrowstyle": "-|>,head_length=0.3,head_width=0.15", "color": pens.ink, "linewidth": 0.8}
    axes.annotate("", end, start, arrowprops={**look, "shrinkA": 0, "shrinkB": 0})
