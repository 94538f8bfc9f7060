"""Documents as HTML: one page that needs no network and no script."""

import base64
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import usvit.documents.document as doc
from usvit.documents.svg import LegendEntry
from usvit.estimate_text import WORDS, interval_text
from usvit.markup import html_element as element

_MOST_BESIDE = 6
"""Columns of a table whose intervals stand beside their numbers; with more columns, they stand below them."""


def html_page(document: doc.Document, css: str = "", script: str = "") -> str:
    """Render a document as a page: one file that needs no network; the same document gives the same bytes.

    Args:
        document: the document.
        css: rules that only this page needs.
        script: the only script that the page's security policy allows. The page says everything without it.
    """
    return "".join(html_pieces(document, css, script))


def html_pieces(document: doc.Document, css: str = "", script: str = "", data: Iterable[Markup] = ()) -> Iterator[str]:
    """Render a document as a page, in pieces; see ``html_page``.

    Args:
        document: the document.
        css: rules that only this page needs.
        script: the only script that the page's security policy allows.
        data: elements that the script reads, such as the rows of tables; they are read while the page is written.
    """
    return (
        _environment()
        .get_template("page.html.j2")
        .generate(
            document=document,
            research_use=doc.RESEARCH_USE,
            lead=html_blocks(document.lead),
            sections=html_blocks(document.sections),
            css=Markup(css),
            data=data,
            script=Markup(script),
            script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


@functools.cache
def _environment() -> Environment:
    """Return the templates of the frame of a page."""
    return Environment(
        loader=PackageLoader("usvit.documents"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def html_blocks(blocks: Iterable[doc.Block], level: int = 2) -> Markup:
    """Render blocks; sections among them have headings of the level ``level``."""
    return Markup("\n").join(_block(block, level) for block in blocks)


def _block(block: doc.Block, level: int) -> Markup:
    match block:
        case doc.DocumentSection():
            return _section(block, level)
        case doc.Table():
            return _table(block)
        case doc.ScriptTable():
            said = f"The table needs JavaScript. The same rows are in {block.file}."
            return element("div", element("p", said), data_table=block.name)
        case doc.Facts():
            return _facts(block)
        case doc.Paragraph():
            return element("p", html_words(block.words), class_="note" if block.small else None)
        case doc.Note():
            return element("p", html_words(block.words), class_="warning")
        case doc.Listing():
            items = (element("li", html_words(one)) for one in block.items)
            return element("ol" if block.ordered else "ul", *items, class_="note" if block.small else None)
        case doc.CodeBlock():
            return element("pre", element("code", block.text), role="region", aria_label=block.name, tabindex=0)
        case doc.Figure():
            return _figure(block)
        case doc.Gallery():
            return _gallery(block)
        case doc.Cards():
            return element("ul", *(_card(one) for one in block.cards), class_="cases")
        case doc.Details():
            inner = element("summary", block.summary), html_blocks(block.blocks, level)
            return element("details", *inner, open="" if block.opened else None)


def _section(section: doc.DocumentSection, level: int) -> Markup:
    inner = html_blocks(section.blocks, level + 1)
    if not section.id:
        return Markup("{}\n{}").format(element(f"h{level}", section.title), inner)
    title = f"{section.id}-title"
    heading = element(f"h{level}", section.title, id=title)
    return element("section", "\n", heading, "\n", inner, "\n", id=section.id, aria_labelledby=title)


def _table(table: doc.Table) -> Markup:
    heads = table.heads
    shown = html_words(table.caption)
    caption = element("caption", element("span", shown)) if shown else element("caption", table.name, class_="hidden")
    head = element("tr", *(element("th", one.title, scope="col", class_=_aligned(one)) for one in heads))
    body = Markup("")
    for group in _groups(table.lines):
        body += element("tbody", "\n", *(_row(row, heads) + "\n" for row in group)) + "\n"
    inner = element(
        "table",
        "\n",
        caption,
        "\n",
        element("thead", head),
        "\n",
        body,
        class_=table.look or ("stack" if len(heads) > _MOST_BESIDE else None),
    )
    shown = element("div", inner, class_="wide", role="region", aria_label=table.name, tabindex=0)
    return shown + (element("p", html_words(table.legend), class_="note") if table.legend else "")


def _groups(rows: Sequence[doc.TableRow]) -> list[list[doc.TableRow]]:
    """Divide rows before each heading of a group."""
    groups: list[list[doc.TableRow]] = [[]]
    for row in rows:
        if row.kind == "group" and groups[-1]:
            groups.append([])
        groups[-1].append(row)
    return groups


def _row(row: doc.TableRow, heads: Sequence[doc.Column]) -> Markup:
    cells = []
    for number, (cell, head) in enumerate(zip(row.cells, heads, strict=False)):
        words = html_words(doc.cell_words(cell))
        left = len(heads) - number
        span = left if number == len(row.cells) - 1 and left > 1 else None
        if number == 0 and row.kind == "group":
            cells.append(element("th", words, scope="rowgroup", colspan=span, class_="group"))
        elif number == 0:
            cells.append(element("th", words, scope="row", colspan=span, class_=_aligned(head)))
        elif isinstance(cell, doc.Shaded):
            shade = f"--share: {cell.share:.3f}"
            cells.append(element("td", words, class_="n cell", style=shade))
        else:
            drawing = _drawing(cell) if isinstance(cell, doc.Drawn) else ""
            cells.append(element("td", words, drawing, class_="text" if span else _aligned(head), colspan=span))
    return element("tr", *cells, class_=row.kind if row.kind == "total" else None)


def _aligned(head: doc.Column) -> str | None:
    return "n" if head.number else None


def _drawing(cell: doc.Drawn) -> Markup:
    """Draw a number, its interval and the reference on an axis of 120 units."""
    low, high = cell.axis

    def at(value: float) -> float:
        return round(120 * (value - low) / (high - low), 1)

    one, shapes = cell.estimate, []
    if one.ci95 is not None:
        ends = {"x1": at(one.ci95[0]), "x2": at(one.ci95[1]), "y1": 8, "y2": 8}
        shapes.append(element("line", **ends, stroke="var(--series-0)", stroke_width=2))
    if one.value is not None:
        shapes.append(element("circle", cx=at(one.value), cy=8, r="3.5", fill="var(--series-0)"))
    if cell.reference is not None:
        diamond = f"M{at(cell.reference)} 2l4.5 6-4.5 6-4.5-6z"
        shapes.append(element("path", d=diamond, fill="none", stroke="var(--series-1)", stroke_width="1.6"))
    return element("svg", *shapes, class_="drawn", viewBox="0 0 120 16", width=120, height=16, aria_hidden="true")


def _facts(facts: doc.Facts) -> Markup:
    return element("dl", *(element("dt", name) + element("dd", html_words(words)) for name, words in facts.rows))


def _figure(figure: doc.Figure, *, legend: bool = True) -> Markup:
    caption = html_words(figure.caption)
    if legend and figure.plot.legend:
        caption += _legend(figure.plot.legend)
    shown = element("figcaption", caption) if caption else Markup("")
    return element("figure", figure.plot.svg(), shown, class_="broad" if figure.wide else None)


def _gallery(gallery: doc.Gallery) -> Markup:
    figures = [_figure(one, legend=not gallery.narrow) for one in gallery.figures]
    if not gallery.narrow:
        return element("div", *figures, class_="pair")
    entries = gallery.figures[0].plot.legend if gallery.figures else ()
    legend = _legend(entries, "legend row") if entries else Markup("")
    return legend + element("div", *figures, class_="multiples")


def _legend(entries: Iterable[LegendEntry], look: str = "legend") -> Markup:
    return element("ul", *(element("li", _sample(one), element("span", one.text)) for one in entries), class_=look)


def _sample(entry: LegendEntry) -> Markup:
    """Draw the line or the mark of an entry of a legend."""
    colour = f"var(--{entry.colour})"
    match entry.kind:
        case "band":
            mark = element("rect", x=0, y=0, width=32, height=8, fill=colour, opacity=".2")
        case "dot":
            mark = element("circle", cx=16, cy=4, r=3, fill="none", stroke=colour)
        case "tick":
            mark = element("line", x1=16, y1=0, x2=16, y2=8, stroke=colour)
        case _:
            line = {"stroke": colour, "stroke_width": f"{entry.width:g}", "stroke_dasharray": entry.svg_dash or None}
            mark = element("line", x1=0, y1=5, x2=32, y2=5, **line)
    return element("svg", mark, viewBox="0 0 32 8", aria_hidden="true")


def _card(card: doc.Card) -> Markup:
    pictures = [
        element(
            "figure",
            Markup('<img src="{}" alt="{}">').format(one.uri, one.words),
            element("figcaption", html_words(one.caption)) if one.caption else "",
        )
        for one in card.pictures
    ]
    missing = element("span", card.missing, class_="unit") if card.missing else ""
    shown = element("div", *pictures, missing, class_="pictures")
    title = element("p", html_words(card.title)) if card.title else ""
    facts = _facts(card.facts) if card.facts.rows else ""
    return element("li", shown, title, facts, **{f"data_{name}": value for name, value in card.data.items()})


def html_words(words: doc.Words) -> Markup:
    """Render the words of a line or of a cell."""
    return Markup("").join(_part(part) for part in doc.inline(words))


def _part(part: str | int | doc.Span | doc.Quantity) -> Markup | str:
    match part:
        case str():
            return part
        case int():
            return f"{part:,}"
        case doc.Quantity():
            return _quantity(part)
        case doc.Span(kind="link"):
            return element("a", part.text, href=part.address)
        case doc.Span(kind="code" | "strong"):
            return element(part.kind, part.text)
        case doc.Span():
            return element("span", part.text, class_={"muted": "unit", "bad": "bad"}[part.kind])


def _quantity(quantity: doc.Quantity) -> Markup:
    """``0.867 0.812 to 0.901``; the reason why something is missing is shown where the pointer rests."""
    one = quantity.estimate
    if one.value is None:
        return element("span", "undefined", class_="unit", title=one.reason)
    style = quantity.style(WORDS)
    number = Markup(style.number(one.value))
    if interval := interval_text(one, style):
        return number + " " + element("span", interval, class_="ci")
    return number + " " + element("span", "no interval", class_="unit", title=one.reason) if one.reason else number
