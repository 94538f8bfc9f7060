"""matplotlib figures as SVG that lives inside a page: themed by it, read aloud by it, the same bytes each time.

Figures carry no text of the user's: names stand in the page's own legends, where they wrap and are escaped.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import style
from matplotlib.figure import Figure

N_SERIES = 6
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.8), (1.4, 1.6), (7, 1.6, 1.4, 1.6), (3, 1.5), (9, 3))
"""On-off lengths, in line widths, of series 0, 1, ...: they are told apart without colour too."""

# Stand-ins for the page's own colours (templates/report.css), so that one figure serves light, dark and print.
INK, MUTED, GRID = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0404{k:02d}" for k in range(1, N_SERIES + 1))
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--rule"} | {c: f"--series-{k}" for k, c in enumerate(SERIES)}

_STYLE = {
    "svg.hashsalt": "usvit",
    "svg.fonttype": "none",
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.solid_capstyle": "round",
}
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"


@contextmanager
def drawing_style() -> Iterator[None]:
    """matplotlib's defaults and ours, whatever the user's matplotlibrc says."""
    with style.context(["default", _STYLE]):
        yield


def to_svg(figure: Figure, *, name: str, title: str) -> Markup:
    """A figure, drawn within ``drawing_style``, as an element to put into HTML.

    Args:
        figure: in the colours of this file.
        name: unique in the page; it starts every id, so that inlined figures do not share ids.
        title: what a screen reader says in place of the picture.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    ElementTree.register_namespace("", _NAMESPACE[1:-1])
    root = ElementTree.fromstring(buffer.getvalue())
    # The metadata is not for the reader, and a style element would speak for the whole page.
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
