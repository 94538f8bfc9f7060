"""matplotlib figures as inline SVG of a page: with its theme, accessible to screen readers, and reproducible.

Figures contain no text from the user: names are in the legends of the page, which wrap and escape them.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from usvit.files import write_atomic

N_SERIES = 6
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.8), (1.4, 1.6), (7, 1.6, 1.4, 1.6), (3, 1.5), (9, 3))
"""On-off lengths, in line widths, of series 0, 1, ..., so that lines differ without colour as well."""

# Stand-ins for the page's own colours (templates/page.css), so that one figure serves light, dark and print.
INK, MUTED, GRID = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0404{k:02d}" for k in range(1, N_SERIES + 1))
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--rule"} | {c: f"--series-{k}" for k, c in enumerate(SERIES)}

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Pens:
    """Colours of a figure."""

    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]

    def of(self, name: str) -> str:
        """``ink``, ``muted`` or ``series-<k>``, as an ``LegendEntry`` names them."""
        return self.series[int(name.removeprefix("series-"))] if name.startswith("series-") else getattr(self, name)


PAGE = Pens(INK, MUTED, GRID, SERIES)
PAPER = Pens("#000000", "#4a4f55", "#c9ced4", ("#2f6690", "#bf4a17", "#3a7d44", "#7b4ea3", "#86691a", "#ab3a63"))
"""The page's colours as printed (templates/page.css), for figures that go into an article."""


@dataclass(frozen=True)
class LegendEntry:
    """One line of a figure's legend, on the page and in a file."""

    text: str
    colour: str
    """``ink``, ``muted`` or ``series-<k>``."""
    width: float = 1.6
    dash: tuple[float, ...] = ()
    kind: str = "line"
    """``line``, ``band``, ``dot`` or ``tick``."""

    @property
    def svg_dash(self) -> str:
        return " ".join(f"{1.6 * length:g}" for length in self.dash)

    def artist(self, pens: Pens) -> Artist:
        colour = pens.of(self.colour)
        if self.kind == "band":
            return Patch(facecolor=colour, alpha=0.2)
        if self.kind == "dot":
            return Line2D([], [], color=colour, marker="o", markersize=4, fillstyle="none", linestyle="none")
        if self.kind == "tick":
            return Line2D([], [], color=colour, marker="|", markersize=7, linestyle="none")
        line = Line2D([], [], color=colour, linewidth=self.width)
        if self.dash:
            line.set_dashes(self.dash)
        return line


@dataclass(frozen=True)
class Plot:
    """A figure that can be drawn for the page and for an article."""

    name: str
    """Unique name in the page, and stem of the file name."""
    title: str
    """Text for screen readers."""
    draw: Callable[[Pens], Figure]
    legend: tuple[LegendEntry, ...] = ()

    def svg(self) -> Markup:
        """Render the figure for the page, which shows the legend itself."""
        with drawing_style():
            return to_svg(self.draw(PAGE), name=self.name, title=self.title)

    def save(self, path: Path, root: Path | None = None) -> None:
        """Write an SVG or PDF file, by the path's suffix, with its legend; the same bytes each time.

        Args:
            path: the file.
            root: as ``usvit.files.atomic``.

        Raises:
            UsvitError: the disk is full or cannot be written.
        """
        with drawing_style(PAPER):
            figure = self.draw(PAPER)
            if self.legend:
                artists = [entry.artist(PAPER) for entry in self.legend]
                # matplotlib leaves out a label that begins with an underscore.
                labels = [f" {entry.text}" if entry.text.startswith("_") else entry.text for entry in self.legend]
                box = figure.legend(artists, labels, loc="outside lower center", frameon=False, fontsize=7.5)
                for text in box.get_texts():
                    text.set_parse_math(False)
            dates = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None}
            write_atomic(path, lambda file: figure.savefig(file, format=path.suffix[1:], metadata=dates), root=root)


@contextmanager
def drawing_style(pens: Pens = PAGE) -> Iterator[None]:
    """Use matplotlib's defaults with the style of the reports, independent of the user's matplotlibrc."""
    ours = {
        "svg.hashsalt": "usvit",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "font.size": 8.5,
        "axes.labelsize": 8.5,
        "text.color": pens.ink,
        "axes.labelcolor": pens.ink,
        "axes.edgecolor": pens.muted,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": pens.grid,
        "grid.linewidth": 0.6,
        "xtick.color": pens.muted,
        "ytick.color": pens.muted,
        "xtick.labelcolor": pens.ink,
        "ytick.labelcolor": pens.ink,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.solid_capstyle": "round",
    }
    with style.context(["default", ours]):
        yield


def to_svg(figure: Figure, *, name: str, title: str) -> Markup:
    """Convert a figure that was drawn within ``drawing_style`` to an SVG element for HTML.

    Args:
        figure: a figure in the colours of this module.
        name: unique in the page; prefix of every id, so that figures do not share ids.
        title: text for screen readers.
    """
    buffer = io.StringIO()
    _lay_out(figure)
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    ElementTree.register_namespace("", _NAMESPACE[1:-1])
    root = ElementTree.fromstring(buffer.getvalue())
    # Remove metadata, and style elements because they would apply to the whole page.
    for parent in [root, *root.findall(f"{_NAMESPACE}defs")]:
        for child in list(parent):
            if child.tag in (f"{_NAMESPACE}metadata", f"{_NAMESPACE}style"):
                parent.remove(child)
    for element in root.iter():
        _adapt(element, name)
    for size in ("width", "height"):
        del root.attrib[size]
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title", "class": "plot", "stroke-linejoin": "round"}
    label = ElementTree.Element(f"{_NAMESPACE}title", {"id": f"{name}-title"})
    label.text = title
    root.insert(0, label)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _lay_out(figure: Figure) -> None:
    """Place the axes as ``savefig`` does for SVG, but without its first drawing of everything, which nobody sees."""
    engine, dpi = figure.get_layout_engine(), figure.dpi
    if engine is None:
        return
    FigureCanvasSVG(figure)
    figure.dpi = 72  # that of the backend
    engine.execute(figure)
    figure.dpi = dpi
    figure.set_layout_engine("none")


def _adapt(element: ElementTree.Element, name: str) -> None:
    if "id" in element.attrib:
        element.set("id", f"{name}-{element.get('id')}")
    if _LINK in element.attrib:
        element.set("href", f"#{name}-{element.attrib.pop(_LINK)[1:]}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.attrib["clip-path"].replace("url(#", f"url(#{name}-"))
    if "style" in element.attrib:
        looks = element.attrib["style"]
        looks = re.sub(r"font-family: [^;]*", "font-family: inherit", looks)
        for stand_in, variable in _VARIABLES.items():
            looks = looks.replace(stand_in, f"var({variable})")
        element.set("style", looks)
